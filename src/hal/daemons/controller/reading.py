"""The half of the API that reads: what is durable, never what is being committed.

Live jobs come from memory, everything else from the store on the readers' thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib import metadata
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import Event, NotFoundError, Reason, SpecError, TaskState, Verdict
from hal.daemons.controller.changing import batched, no_job, rows_of
from hal.daemons.controller.controllers_view import ControllersList, list_controllers
from hal.daemons.controller.parts import Parts
from hal.daemons.controller.views import (
    JobView,
    NodeView,
    QueueView,
    TaskView,
    WhyView,
    job_view,
    task_view,
    why_view,
)
from hal.daemons.controller.watching import Watcher
from hal.planes.tasks import Pace, job_row, reason_of
from hal.runtime import root_steps
from hal.runtime.authority import MAX_PEM_FILE_BYTES, authority_file, public_fingerprint
from hal.runtime.interface import Runtime
from hal.runtime.regular_files import read_regular
from hal.store import JobFilter, JobRow, NodeRow

MAX_WAIT_S = 600.0
"""Longest long poll."""
MAX_ATTEMPTS_SHOWN = 1_000
VERSION = metadata.version("hal-scheduler")


class Owned(NamedTuple):
    """Whose a job is."""

    user: str
    account: str
    queue: str


class Reading:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def row(self, job: int) -> JobRow:
        """The job's row, as it was last committed.

        Raises:
            NotFoundError: there is no such job.
        """
        live = self._parts.plane.job(job)
        row = job_row(live) if live is not None else await self._parts.committer.read(lambda store: store.job(job))
        if row is None:
            raise no_job(job)
        return row

    @property
    def runtime(self) -> Runtime:
        """What the controller runs on."""
        return self._parts.runtime

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        """Whose they are; those that do not exist are left out. A job's user never changes."""
        found: dict[int, Owned] = {}
        missing: list[int] = []
        pace = Pace()
        for job in dict.fromkeys(jobs):
            live = self._parts.plane.job(job)
            if live is None:
                missing.append(job)
            else:
                found[job] = Owned(live.user, live.account, live.queue)
            if pace.over():
                await self._parts.runtime.sleep(0)
        for some in batched(missing):
            rows = await self._parts.committer.read(partial(rows_of, jobs=some))
            found.update((row.id, Owned(row.user, row.account, row.queue)) for row in rows if row is not None)
        return found

    async def job(self, job: int) -> JobView:
        """The job, with its spec."""
        view = job_view(await self.row(job), spec=True)
        return replace(view, dependants=tuple(str(other) for other in self._parts.plane.dependants(job)))

    async def jobs(self, wanted: JobFilter, after: int | None, limit: int) -> list[JobView]:
        """Jobs that match, newest first, after the one with id `after`."""
        rows = await self._parts.committer.read(lambda store: store.jobs(wanted, after=after, limit=limit))
        return [job_view(row) for row in rows]

    async def wait(self, job: int, timeout_s: float) -> JobView:
        """The job when it has ended, or as it is after `timeout_s`."""
        if not 0 <= timeout_s <= MAX_WAIT_S:
            raise SpecError(f"timeout_s: {timeout_s} is out of range", hint=f"between 0 and {MAX_WAIT_S:.0f}")
        row = await self.row(job)
        if row.end_ms is None and timeout_s > 0:
            row = await self._parts.waiters.wait(job, timeout_s) or await self.row(job)
        if row.end_ms is not None:
            await self._parts.flusher.caught_up()
        return job_view(row, spec=True)

    async def why(self, job: int) -> WhyView:
        """Why it does not start, how it goes, or how it ended."""
        live = self._parts.plane.job(job)
        if live is None:
            row = await self.row(job)
            message = f"has ended: {row.state}" + (f" ({row.reason})" if row.reason else "")
            return why_view(Verdict(job=job, reason=Reason.NONE, message=message), row.state)
        return why_view(self._parts.plane.why(live, self._parts.clock.now_ms()), live.state)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def tasks(self, job: int, states: tuple[TaskState, ...], after: int | None, limit: int) -> list[TaskView]:
        """Tasks in ascending order, after task number `after`."""
        await self.row(job)
        rows = await self._parts.committer.read(lambda store: store.tasks(job, states, after=after, limit=limit))
        return [task_view(row) for row in rows]

    async def task(self, job: int, task: int) -> TaskView:
        """One task with all its attempts.

        Raises:
            NotFoundError: there is no such job or task.
        """
        row = await self.row(job)
        found = await self._parts.committer.read(lambda store: store.task(job, task))
        if found is None:
            raise NotFoundError(f"job {job} has no task {task}", hint=f"its tasks are 0 to {row.tasks - 1}")
        attempts = await self._parts.committer.read(
            lambda store: store.attempts(job, task=task, limit=MAX_ATTEMPTS_SHOWN)
        )
        return task_view(found, attempts)

    # ── nodes and queues ──────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> list[NodeView]:
        """All nodes by name."""
        running = self._running()
        table = self._parts.plane.table
        return [self._node(table.nodes[name], running.get(name, 0)) for name in sorted(table.nodes)]

    def node(self, name: str) -> NodeView:
        """One node.

        Raises:
            NotFoundError: there is none of that name.
        """
        row = self._parts.plane.table.nodes.get(name)
        if row is None:
            raise NotFoundError(f"there is no node '{name}'", hint="`hal nodes` lists them")
        return replace(self._node(row, self._running().get(name, 0)), facts=row.about.facts)

    def queues(self) -> list[QueueView]:
        """All queues by name. O(live jobs)."""
        table = self._parts.plane.table
        tally = {name: [0, 0, 0, 0] for name in table.committed_policy.queues}
        for owner, jobs in table.jobs.packed_owners():
            counts = tally.setdefault(owner.queue, [0, 0, 0, 0])
            counts[0] += jobs
            counts[1] += jobs
        for job in table.jobs.unpacked():
            counts = tally.setdefault(job.queue, [0, 0, 0, 0])
            counts[0] += 1
            counts[1] += job.counts.pending
            counts[2] += job.counts.held
            counts[3] += job.counts.active
        out = []
        for name in sorted(tally):
            queue = table.committed_policy.queues.get(name)
            out.append(
                QueueView(
                    name=name,
                    open=queue.open if queue else False,
                    default_walltime=queue.default_walltime if queue else None,
                    max_walltime=queue.max_walltime if queue else None,
                    description=queue.description if queue else "not declared any more",
                    jobs=tally[name][0],
                    pending=tally[name][1],
                    held=tally[name][2],
                    running=tally[name][3],
                )
            )
        return out

    def _node(self, row: NodeRow, running: int) -> NodeView:
        heard = self._parts.agents.last_heard_ms(row.name) or row.last_seen_ms
        return NodeView(
            name=row.name,
            state=row.state,
            capacity=row.capacity,
            free=self._parts.engine.free(row),
            labels=row.labels,
            reason=reason_of(row),
            last_seen_ms=heard or None,
            running=running,
            notes=row.notes,
            connected=self._parts.agents.connected(row.name),
            boot_id=row.boot_id,
            closures=row.about.closures,
        )

    def _running(self) -> dict[str, int]:
        running: dict[str, int] = {}
        table = self._parts.plane.table
        for job_id in table.busy:
            for attempt in table.jobs[job_id].active.values():
                for node in attempt.nodes:
                    running[node] = running.get(node, 0) + 1
        return running

    # ── the feed and the whole ────────────────────────────────────────────────────────────────────────────────────

    async def events(self, after: int, limit: int, job: int | None) -> list[Event]:
        """The feed after a sequence number, oldest first; no further than a power failure leaves it as it is."""
        flushed = self._parts.watchers.flushed_seq
        found = await self._parts.committer.read(lambda store: store.events(after, limit=limit, job=job))
        return [event for event in found if event.sequence <= flushed]

    async def follower_hashes(self) -> frozenset[str]:
        """Of the secrets by which followers are known that pass requests on."""
        rows = await self._parts.committer.read(lambda store: store.controllers())
        return frozenset(row.secret_hash for row in rows if row.secret_hash)

    async def controllers(self) -> ControllersList:
        """All controllers that share the store, by name."""
        own = self._parts.presence.row if self._parts.presence is not None else None
        return await self._parts.committer.read(lambda store: list_controllers(store, own))

    async def last_sequence(self) -> int:
        """Of the newest event that may be told."""
        return self._parts.watchers.flushed_seq

    def watch(self, job: int | None) -> Watcher:
        """A bounded buffer of the events from now on; `unwatch` it."""
        return self._parts.watchers.open(job)

    def unwatch(self, watcher: Watcher) -> None:
        """It is of no more use."""
        self._parts.watchers.drop(watcher)

    def authority(self) -> AuthorityView:
        """That of this HAL.

        Raises:
            NotFoundError: it has none.
        """
        return read_authority(self._parts.runtime)

    def _exposed(self) -> list[str]:
        """Whose account others are given who may come in: that of whoever runs the steps here."""
        access, runs_as, now_ms = self._parts.access, self._parts.runs_as, self._parts.clock.now_ms()
        if not runs_as or self._parts.steps_of:
            return []
        ways = []
        if access.socket and (access.users or access.operators or access.admins):
            ways.append("everybody in [access]")
        if any(token.live(now_ms) and token.user != runs_as for token in self._parts.tokens.all()):
            ways.append("whoever holds a token")
        if not ways and access.steps_run_as_root and runs_as == root_steps.ROOT:
            ways.append("whoever may submit")
        return [f"steps run as {runs_as}: {' and '.join(ways)} is given that account"] if ways else []

    def health(self) -> Health:
        """How the controller is."""
        table, loop = self._parts.plane.table, self._parts.loop
        jobs: dict[str, int] = {}
        if waiting := table.jobs.waiting:
            jobs[TaskState.PENDING.value] = waiting
        for job in table.jobs.unpacked():
            jobs[job.state.value] = jobs.get(job.state.value, 0) + 1
        nodes: dict[str, int] = {}
        for row in table.nodes.values():
            nodes[row.state.value] = nodes.get(row.state.value, 0) + 1
        warnings = [f"nothing can be made durable: {loop.trouble}"] if loop.trouble else []
        warnings += self._parts.faults.warnings(self._parts.engine.state.config)
        warnings += self._exposed()
        warnings += [f"node {row.name}: {note}" for row in table.nodes.values() for note in row.notes]
        return Health(
            status="degraded" if loop.trouble else "ok",
            version=VERSION,
            epoch=self._parts.committer.epoch,
            pid=self._parts.runtime.pid,
            now_ms=self._parts.clock.now_ms(),
            jobs=jobs,
            nodes=nodes,
            lost_after_ms=self._parts.agents.leases.lost_after_ms,
            warnings=warnings,
            wire=self._parts.node_door.wire,
            rest=self._parts.rest,
            store=self._parts.committer.store.place,
        )


def read_authority(runtime: Runtime) -> AuthorityView:
    """The authority of this HAL, for whoever has its fingerprint.

    Raises:
        NotFoundError: there is none.
    """
    try:
        certificate = read_regular(authority_file(runtime.paths.authority), MAX_PEM_FILE_BYTES, follow=True).decode()
    except FileNotFoundError:
        raise NotFoundError("this HAL has no authority: it serves neither TLS nor agents of other machines") from None
    return AuthorityView(certificate=certificate, fingerprint=public_fingerprint(certificate))


class AuthorityView(Struct, frozen=True, kw_only=True):
    """A HAL's own certificate authority."""

    certificate: str
    """PEM. It is public; believe it when it has the fingerprint that you were told."""
    fingerprint: str
    """`sha256:` and hex digits."""


class Health(Struct, frozen=True, kw_only=True):
    """How the controller is."""

    status: str
    """`ok`; `degraded`: it reads, but nothing new can be made durable; `following`: another controller leads."""
    version: str
    epoch: int
    pid: int
    now_ms: int
    jobs: dict[str, int]
    """Live jobs by state."""
    nodes: dict[str, int]
    """Nodes by state."""
    lost_after_ms: int
    """So long after it was last heard a node has certainly ended tasks that say `on_node_lost: requeue`."""
    warnings: list[str]
    wire: str = ""
    """Where agents of other machines dial, `HOST:PORT`; empty: nowhere."""
    rest: str = ""
    """Where people reach this controller from elsewhere; empty: nowhere."""
    store: str = ""
    """The database, without its password; the file on SQLite."""
    leader: str = ""
    """Told by a follower: who leads, and where."""
