"""Keeps the past within its bounds: events, commit ids, keys; ended jobs with their attempts and outputs; unused space.

Everything is done in small pieces between groups, with pauses, so that commits never wait for more than one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from hal.core.model import HALError
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.key_age import KeyAge
from hal.daemons.controller.service.jobs.removal import MARKED_AT_ONCE, JobRemoval
from hal.runtime.interface import Runtime
from hal.store import DAY_MS, Kept, OldJob, Removed, Retention, Store

TRIM_EVERY_MS: Final = 60_000
"""How often what retention does not keep beside jobs is removed."""
EXPIRE_EVERY_MS: Final = 600_000
"""How often old jobs are looked for; so much more than is kept may be there."""
PAUSE_MS: Final = 20
"""Between two pieces; commits go first."""
MAX_PIECES: Final = 1_000
"""Pieces of one kind in a row, before the other kinds have their turn."""


class Bound(NamedTuple):
    """How much is kept of one thing."""

    removed: Removed
    """What is removed beyond."""
    what: str
    """As `[retention]` names it."""
    keep_ms: int
    keep_count: int

    @property
    def age_rule(self) -> str:
        """The bound by age, as hal.toml has it."""
        return f"{self.what}_days = {self.keep_ms // DAY_MS}"

    @property
    def count_rule(self) -> str:
        """The bound by number, as hal.toml has it."""
        return f"{self.what}_count = {self.keep_count}"


class Keeping:
    """The retention of one controller."""

    def __init__(
        self, runtime: Runtime, clock: Clock, committer: Committer, removal: JobRemoval, retention: Retention
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._committer = committer
        self._removal = removal
        self._retention = retention
        self._keys = KeyAge(retention.idempotency_ms)

    async def run(self) -> None:
        """Until cancelled."""
        trim_ms = self._runtime.monotonic_ms() + TRIM_EVERY_MS
        expire_ms = trim_ms
        while True:
            await self._wait(max(trim_ms - self._runtime.monotonic_ms(), 0))
            try:
                await self._sweep()
                if self._runtime.monotonic_ms() < trim_ms:
                    continue
                await self._trim()
                if self._runtime.monotonic_ms() >= expire_ms:
                    await self.expire()
                    expire_ms = self._runtime.monotonic_ms() + EXPIRE_EVERY_MS
                await self._shrink()
            except HALError as error:
                self._runtime.log.warning("what is too old was not removed", reason=str(error))
            trim_ms = self._runtime.monotonic_ms() + TRIM_EVERY_MS

    async def _wait(self, longest_ms: int) -> None:
        """Until it is time to trim, or somebody has removed jobs."""
        timer = self._runtime.call_later(longest_ms, self._removal.marked.set)
        await self._removal.marked.wait()
        timer.cancel()
        self._removal.marked.clear()

    async def _trim(self) -> None:
        keys_before_ms = self._keys.written_before(self._clock.now_ms(), self._runtime.monotonic_ms())
        for _ in range(MAX_PIECES):
            store = self._committer.store
            call = partial(store.trim, self._clock.now_ms(), self._retention, keys_before_ms=keys_before_ms)
            trimmed = await self._runtime.run_blocking(partial(call, epoch=self._committer.epoch))
            if not trimmed.more:
                return
            await self._runtime.sleep(PAUSE_MS)

    async def _sweep(self) -> None:
        await self._removal.name_left()
        for _ in range(MAX_PIECES):
            store = self._committer.store
            sweep = partial(store.sweep, self._clock.now_ms(), self._retention, epoch=self._committer.epoch)
            if not (await self._runtime.run_blocking(sweep)).more:
                break
            await self._runtime.sleep(PAUSE_MS)
        await self._sweep_tasks()

    async def _sweep_tasks(self) -> None:
        """Delete what removed tasks of jobs that stay have left."""
        for _ in range(MAX_PIECES):
            read = partial(Store.going_attempts, now_ms=self._clock.now_ms(), retention=self._retention)
            going = await self._committer.read(read)
            if going is None:
                return
            await self._removal.forget_outputs(going)
            await self._delete(partial(self._committer.store.delete_going, going, epoch=self._committer.epoch))
            if not going:
                return

    async def _delete(self, delete: Callable[[], bool]) -> None:
        """Call this until there is no more to delete."""
        for _ in range(MAX_PIECES):
            if not await self._runtime.run_blocking(delete):
                return
            await self._runtime.sleep(PAUSE_MS)

    async def _shrink(self) -> None:
        for _ in range(MAX_PIECES):
            shrink = partial(self._committer.store.shrink, epoch=self._committer.epoch)
            if not await self._runtime.run_blocking(shrink):
                return
            await self._runtime.sleep(PAUSE_MS)

    async def expire(self) -> None:
        """Remove what exceeds the bounds of each queue."""
        now_ms, retention = self._clock.now_ms(), self._retention
        needed_ms = await self._committer.read(lambda store: store.needed_since(now_ms, retention))
        for queue in await self._committer.read(lambda store: store.ended_queues()):
            for bound in _bounds(retention.of(queue)):
                await self._expire_some(queue, bound, needed_ms)

        await self._bound_attempts()

    async def _bound_attempts(self) -> None:
        """Remove the oldest attempts of tasks that run again and again, also of live jobs."""
        after = (0, 0)
        for _ in range(MAX_PIECES):
            read = partial(Store.old_attempts, now_ms=self._clock.now_ms(), retention=self._retention, after=after)
            old, then = await self._committer.read(read)
            if old:
                await self._removal.forget_outputs(old)
                delete = partial(self._committer.store.delete_attempts, old, epoch=self._committer.epoch)
                await self._delete(delete)
            if then is None:
                return
            after = then
            await self._runtime.sleep(PAUSE_MS)

    async def _expire_some(self, queue: str, bound: Bound, needed_ms: int) -> None:
        """Remove what exceeds one bound, but nothing whose attempts a reader needs: jobs that ended at `needed_ms` or
        later."""
        now_ms, whole = self._clock.now_ms(), bound.removed is Removed.JOB
        jobs, tasks = await self._committer.read(partial(_weigh, queue=queue, bound=bound))
        excess = (jobs if whole else tasks) - bound.keep_count
        after = (-1, 0)
        while True:
            oldest = await self._committer.read(partial(_oldest, queue=queue, bound=bound, after=after))
            due: list[OldJob] = []
            too_old = 0
            for job in oldest:
                is_old = job.end_ms < now_ms - bound.keep_ms
                if job.end_ms >= needed_ms or not (is_old or excess > 0):
                    break
                excess -= 1 if whole else job.tasks
                too_old += is_old
                due.append(job)
            for some, rule in ((due[:too_old], bound.age_rule), (due[too_old:], bound.count_rule)):
                if some:
                    await self._removal.mark([job.id for job in some], bound.removed, None, f"{rule}, queue {queue}")
            if due:
                await self._sweep()
            if len(due) < MARKED_AT_ONCE:
                return
            after = (due[-1].end_ms, due[-1].id)
            await self._runtime.sleep(PAUSE_MS)


def _bounds(kept: Kept) -> Iterator[Bound]:
    """The most first: what a job loses with all of it is not removed on its own before."""
    yield Bound(Removed.JOB, "jobs", kept.jobs_ms, kept.jobs_count)
    yield Bound(Removed.ATTEMPTS_GOING, "attempts", kept.attempts_ms, kept.attempts_count)
    yield Bound(Removed.OUTPUTS, "outputs", kept.outputs_ms, kept.outputs_count)


def _weigh(store: Store, queue: str, bound: Bound) -> tuple[int, int]:
    return store.weigh_ended(queue, bound.removed)


def _oldest(store: Store, queue: str, bound: Bound, after: tuple[int, int]) -> list[OldJob]:
    return store.oldest_ended(queue, bound.removed, after=after, limit=MARKED_AT_ONCE)
