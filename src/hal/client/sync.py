"""The synchronous client.

Thread-safe. A controller that is restarted is waited for (`RECONNECT_S`); every error derives from `hal.HALError`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from hal.client import calls
from hal.client.address import Address, find_address
from hal.client.backoff import Backoff
from hal.client.calls import Call, Page
from hal.client.ended import as_ended
from hal.client.http import RECONNECT_S, BrokenStreamError, Connections
from hal.client.job import Job
from hal.client.outcome import ids_of
from hal.client.specs import JobOptions
from hal.client.sse import EventReader
from hal.client.steps import DRAIN_ROUND_S, Steps, controlled, emptied
from hal.client.submission import SpecLike, sort_out
from hal.client.views import (
    EventInfo,
    HealthInfo,
    JobInfo,
    LedgerInfo,
    NodeInfo,
    Outcome,
    PriorityInfo,
    QueueInfo,
    ShareInfo,
)

if TYPE_CHECKING:
    from hal.client.policy_views import LicenceInfo, PolicyChange, PolicyInfo
    from hal.core.model.policy_change import Operation

T = TypeVar("T")


class Client:
    """A connection to one HAL. Use `hal.connect()`, or as a context manager."""

    def __init__(self, address: Address | None = None, *, reconnect_s: float = RECONNECT_S) -> None:
        """Opens no connection yet.

        Args:
            address: default: as `hal.connect()` finds it.
            reconnect_s: how long a controller that answered before is waited for when it stops answering.
        """
        self.connections = Connections(address or find_address(), reconnect_s=reconnect_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.connections.address.named!r})"

    def close(self) -> None:
        """Close its connections; nothing can be asked after that."""
        self.connections.close()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    def submit(
        self,
        what: str | Sequence[str] | SpecLike | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    def submit(self, what: Sequence[SpecLike], *, idempotency_key: str | None = None) -> list[Job]: ...

    def submit(
        self,
        what: str | Sequence[str] | SpecLike | Sequence[SpecLike] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job | list[Job]:
        """Submit one job (a command with keywords, or a whole spec) or several (a list of specs, all or none).

        Args:
            what: program and arguments; text for /bin/sh; a `JobSpec`; plain data as in a spec file; or a list of the
                last two. None with `script=`.
            idempotency_key: a second submission with the same key gives the jobs of the first.
            options: see `JobOptions` and docs/python.md: cpus, memory, gpus, request, nodes, walltime, array, name,
                queue, account, user, priority, after, env, workdir, retries, labels, constraints, hold, script, begin,
                signal.
        Raises:
            SpecError: malformed, or it can never be met; nothing was submitted.
            UnreachableError, OverloadedError: nothing was submitted.
        """
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        answer = self.call(calls.submit(submission.specs, key=idempotency_key))
        jobs = [Job(self, job) for job in ids_of(answer)]
        return jobs if submission.many else jobs[0]

    def check(self, what: str | Sequence[str] | SpecLike | Sequence[SpecLike], **options: Unpack[JobOptions]) -> None:
        """As `submit`, but only say whether it would be accepted.

        Raises:
            SpecError: it would not.
        """
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        self.call(calls.submit(submission.specs, dry_run=True))

    def job(self, job_id: str | int) -> Job:
        """The job with that id.

        Raises:
            NotFoundError: there is none.
        """
        job = Job(self, str(job_id))
        job.refresh()
        return job

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[JobInfo]:
        """Jobs, newest first, page by page as they are consumed.

        Args:
            limit: stop after so many.
            filters: state (a list means any of them), user, queue, name, account, label (a list or dict: all).
        """
        return self.paged(lambda size, cursor: calls.jobs(calls.filters_of(filters), limit=size, cursor=cursor), limit)

    def wait_all(self, jobs: Iterable[Job | str | int], timeout: float | None = None) -> list[JobInfo]:
        """Wait until all of them have ended.

        Args:
            timeout: seconds for all together; None: no limit.
        Returns: in the given order.
        Raises:
            TimedOutError: not all have ended by then; they go on.
        """
        ids = [str(job) for job in jobs]
        ends = {info.id: info for info in as_ended(self, list(dict.fromkeys(ids)), timeout)}
        return [ends[one] for one in ids]

    def as_ended(self, jobs: Iterable[Job | str | int], timeout: float | None = None) -> Iterator[JobInfo]:
        """Each of them as soon as it has ended, in the order in which they end.

        Args:
            timeout: seconds for all together; None: no limit.
        Raises:
            TimedOutError: not all have ended by then; they go on.
        """
        return as_ended(self, list(dict.fromkeys(str(job) for job in jobs)), timeout)

    def cancel(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Cancel jobs (`42`) and tasks (`42.7`) by id, or all that a filter names; one outcome each."""
        return self.drive(controlled("cancel", ids, filters))

    def hold(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Keep jobs that have not started from starting."""
        return self.drive(controlled("hold", ids, filters))

    def release(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Let held jobs start again."""
        return self.drive(controlled("release", ids, filters))

    def requeue(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Stop running tasks and let them, or ended ones, run again as a new attempt."""
        return self.drive(controlled("requeue", ids, filters))

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> list[NodeInfo]:
        """All nodes, by name."""
        return list(self.call(calls.nodes()))

    def node(self, name: str) -> NodeInfo:
        """One node.

        Raises:
            NotFoundError: there is none of that name.
        """
        return self.call(calls.node(name))

    def fence(self, name: str) -> NodeInfo:
        """Declare a node gone for good: its attempts are lost and their tasks run again. Nothing may run there still.

        Raises:
            ConflictError: it is up.
        """
        return self.call(calls.fence(name))

    def cordon(self, *names: str, reason: str = "") -> list[Outcome]:
        """Nothing new starts on these nodes until they are uncordoned; what runs goes on. One outcome each."""
        return list(self.call(calls.control_nodes("cordon", names, reason)))

    def uncordon(self, *names: str) -> list[Outcome]:
        """Work may start again on these nodes, unless something else than a person keeps it away (`detail` says so)."""
        return list(self.call(calls.control_nodes("uncordon", names)))

    def drain(self, *names: str, reason: str = "") -> list[Outcome]:
        """Nothing new starts on these nodes, and they are to become empty; `wait_drained` waits for that."""
        return list(self.call(calls.control_nodes("drain", names, reason)))

    def wait_drained(
        self, name: str, timeout: float | None = None, *, seen: Callable[[NodeInfo], None] = lambda node: None
    ) -> NodeInfo:
        """The node when it holds nothing any more, or is not drained any more; `seen` gets it each second until then.

        Raises:
            TimedOutError: it still holds something after `timeout` seconds.
            NotFoundError: there is no such node (any more).
        """
        return self.drive(emptied(name, timeout, clock=time.monotonic, seen=seen, round_s=DRAIN_ROUND_S))

    def remove_nodes(self, *names: str) -> list[Outcome]:
        """Forget nodes that are gone, or cordoned, and hold nothing. One that dials again is a new node."""
        return list(self.call(calls.control_nodes("remove", names)))

    def queues(self) -> list[QueueInfo]:
        """All queues."""
        return list(self.call(calls.queues()))

    def policy(self, version: int | None = None) -> PolicyInfo:
        """The policy that holds, or that version.

        Raises:
            NotFoundError: the version is not kept.
        """
        from hal.client import policy_calls

        return self.call(policy_calls.policy(version))

    def change_policy(
        self, *operations: Operation, version: int | None = None, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """Do all of these to the policy, in one commit, or none.

        Args:
            version: only when this version holds; None: whichever does.
            dry_run: change nothing; the answer tells what would change and what it means for live jobs.
        Raises:
            ConflictError: another version holds, or an entry to add is there already.
            SpecError, NotFoundError: it cannot be done; nothing was changed.
        """
        from hal.client import policy_calls

        return self.call(policy_calls.change_policy(operations, version=version, dry_run=dry_run, note=note))

    def put_policy(
        self, policy: Mapping[str, Any], *, version: int, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """Let another policy (plain data, as in hal.toml) hold in place of that version.

        Raises: as `change_policy`.
        """
        from hal.client import policy_calls

        return self.call(policy_calls.put_policy(policy, version=version, dry_run=dry_run, note=note))

    def licences(self) -> list[LicenceInfo]:
        """Amounts of the whole cluster: total, used, booked, free."""
        from hal.client import policy_calls

        return list(self.call(policy_calls.licences()))

    def shares(self) -> list[ShareInfo]:
        """The tree of shares: what is meant for whom, what they have had."""
        return list(self.call(calls.shares()))

    def ledgers(self) -> list[LedgerInfo]:
        """How much of each limit is in use."""
        return list(self.call(calls.ledgers()))

    def priority(self, job: int) -> PriorityInfo:
        """A waiting job's priority, factor by factor.

        Raises:
            NotFoundError: no such job.
            ConflictError: it does not wait for resources.
        """
        return self.call(calls.priority(job))

    def health(self) -> HealthInfo:
        """How the controller is."""
        return self.call(calls.health())

    def version(self) -> dict[str, Any]:
        """What the controller says about its version."""
        return self.call(calls.version())

    def events(
        self, after: int | None = None, *, follow: bool = False, job: str | int | None = None
    ) -> Iterator[EventInfo]:
        """The durable feed, in commit order.

        Args:
            after: begin behind this sequence number; None: from the first kept one, or with `follow` from now on.
            follow: do not end, but wait for more; goes on by itself after a restart of the controller.
            job: only what concerns this job.
        """
        job_id = "" if job is None else str(job)
        return self._followed_events(after, job_id) if follow else self._past_events(after or 0, job_id)

    def call(self, call: Call[T]) -> T:
        """Send one call of REST /v1 and read its answer."""
        return call.read(self.connections.send(call.request))

    def drive(self, steps: Steps[T]) -> T:
        """Make the calls that it yields, one after the other; its result."""
        answer: Any = None
        while True:
            try:
                call = steps.send(answer)
            except StopIteration as finished:
                result: T = finished.value
                return result
            answer = self.call(call)

    def paged(self, call: Callable[[int, str], Call[Page[T]]], limit: int | None) -> Iterator[T]:
        """Items of all pages of a listing; `call` gets a page's size and the cursor of the page before."""
        cursor, left = "", limit
        while left is None or left > 0:
            page = self.call(call(calls.PAGE_ITEMS if left is None else min(left, calls.PAGE_ITEMS), cursor))
            yield from page.items if left is None else page.items[:left]
            left = None if left is None else left - len(page.items)
            cursor = page.next(cursor)
            if not cursor:
                return

    def _past_events(self, after: int, job_id: str) -> Iterator[EventInfo]:
        while page := self.call(calls.events(after, job_id=job_id)).items:
            yield from page
            after = calls.last_sequence(page, after)

    def _followed_events(self, after: int | None, job_id: str) -> Iterator[EventInfo]:
        backoff = Backoff(self.connections.reconnect_s)
        while True:
            try:
                with self.connections.stream(calls.event_stream(after, job_id=job_id)) as stream:
                    reader = EventReader()
                    for chunk in stream:
                        backoff.worked()
                        for event in reader.feed(chunk):
                            info = calls.read_event(event)
                            if info is not None:
                                after = calls.last_sequence([info], -1 if after is None else after)
                                yield info
            except BrokenStreamError:
                pass
            delay_s = backoff.failed(time.monotonic())
            if delay_s is None:
                raise self.connections.address.unreachable("its event feed ends again and again")
            time.sleep(delay_s)
