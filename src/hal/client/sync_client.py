"""The sync client; thread-safe.

Generated from async_client.py by tools/sync_client.py: edit that file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from hal.client.addresses.address import Address, find_address
from hal.client.flows.completion import as_ended
from hal.client.flows.ended_attempts import OnLost, ended_attempts, ignore_lost
from hal.client.flows.player import Player
from hal.client.flows.steps import (
    DRAIN_ROUND_S,
    Steps,
    controlled,
    emptied,
    followed_events,
    paged,
    past_events,
    removed,
)
from hal.client.job import Job
from hal.client.rest import calls
from hal.client.rest.calls import Call, Page
from hal.client.rest.feed_calls import EndedAttemptInfo, attempt_filters
from hal.client.rest.outcome import ids_of
from hal.client.rest.views import (
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
from hal.client.specs import JobOptions, instant_ms
from hal.client.submission import SpecLike, sort_out
from hal.client.transport.exchange import RECONNECT_S
from hal.client.transport.http import Connections
from hal.core.model import SpecError

if TYPE_CHECKING:
    from hal.client.rest.access_calls import AccessInfo
    from hal.client.rest.advice_calls import AdviceInfo, AdvicePut
    from hal.client.rest.ask_calls import PlanInfo, WantsInfo
    from hal.client.rest.offer_calls import OfferInfo
    from hal.client.rest.policy_views import LicenceInfo, PolicyChange, PolicyInfo
    from hal.core.model.policy_change import Operation

T = TypeVar("T")


class Client:
    """A connection to one HAL. Make it with `hal.connect()`, and close it or use it as a context manager.

    A controller that is restarted is waited for (`RECONNECT_S`); every error derives from `hal.HALError`.
    """

    def __init__(self, address: Address | None = None, *, reconnect_s: float = RECONNECT_S) -> None:
        """Open no connection yet.

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
        return f"Client({self.address.named!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled client holds its address, token included; the copy has connections of its own."""
        return _restored, (self.address, self.connections.reconnect_s)

    @property
    def address(self) -> Address:
        """The HAL that it talks to."""
        return self.connections.address

    def close(self) -> None:
        """Close its connections; every later call is refused."""
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
            idempotency_key: a second submission with the same key returns the jobs of the first.
            options: the keywords of `hal.JobOptions`, which docs/python.md describes.
        Raises:
            SpecError: malformed, or it can never run; nothing was submitted.
            UnreachableError, OverloadedError: nothing was submitted.
        """
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        answer = self.call(calls.submit(submission.specs, key=idempotency_key))
        jobs = [Job(self, job) for job in ids_of(answer)]
        return jobs if submission.many else jobs[0]

    def check(self, what: str | Sequence[str] | SpecLike | Sequence[SpecLike], **options: Unpack[JobOptions]) -> None:
        """Check what `submit` would submit, without submitting it.

        Raises:
            SpecError: it would be refused.
        """
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        self.call(calls.submit(submission.specs, dry_run=True))

    def job(self, job_id: str | int) -> Job:
        """Find a job by its id.

        Raises:
            NotFoundError: there is none.
        """
        job = Job(self, str(job_id))
        job.refresh()
        return job

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[JobInfo]:
        """List jobs, newest first, page by page as they are consumed.

        Args:
            limit: stop after so many.
            filters: state (a list means any of them), user, queue, name, account, label (a list or dict: all).
        """
        return self.paged(lambda size, cursor: calls.jobs(calls.filters_of(filters), limit=size, cursor=cursor), limit)

    def wait_all(self, jobs: Iterable[Job | str | int], timeout: float | None = None) -> list[JobInfo]:
        """Wait until all of these jobs have ended.

        Args:
            timeout: seconds for all together; None: no limit.
        Returns: in the given order.
        Raises:
            TimedOutError: not all have ended by then; they continue.
        """
        ids = [str(job) for job in jobs]
        ends = {info.id: info for info in self.as_ended(ids, timeout)}
        return [ends[one] for one in ids]

    def as_ended(self, jobs: Iterable[Job | str | int], timeout: float | None = None) -> Iterator[JobInfo]:
        """Give each of these jobs as soon as it has ended, in the order in which they end.

        Args:
            timeout: seconds for all together; None: no limit.
        Raises:
            TimedOutError: not all have ended by then; they continue.
        """
        return as_ended(self.connections, list(dict.fromkeys(str(job) for job in jobs)), timeout)

    def cancel(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Cancel jobs (`42`) and tasks (`42.7`) by id, or all that a filter selects; one outcome for each."""
        return self.drive(controlled("cancel", ids, filters))

    def hold(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Hold jobs, so that what has not started does not start."""
        return self.drive(controlled("hold", ids, filters))

    def release(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Release held jobs."""
        return self.drive(controlled("release", ids, filters))

    def requeue(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """Stop running tasks and let them, or ended ones, run again as a new attempt."""
        return self.drive(controlled("requeue", ids, filters))

    def remove(self, *ids: str | int, ended_before: str | datetime | None = None, **filters: Any) -> list[Outcome]:
        """Remove ended jobs, their attempts and outputs, by id or by filter; one outcome for each.

        Args:
            ended_before: all that ended before this instant (`now-30d`), or those of them that the filter selects.
        Raises:
            SpecError: no instant, or together with ids.
        """
        before_ms = None if ended_before is None else instant_ms(ended_before, "ended_before")
        if ids and (filters or before_ms is not None):
            raise SpecError("remove: ids and filters cannot be combined")
        return self.drive(removed(ids, filters, before_ms))

    def evict(
        self, *ids: str | int, mode: str = "requeue", reason: str = "", within: str = "", **filters: Any
    ) -> list[Outcome]:
        """Make running jobs (`42`) and tasks (`42.7`) leave, by id, or all that a filter selects; for operators.

        Args:
            mode: `requeue` or `checkpoint` (they run again, no retry is counted), or `cancel`.
            reason: one line for the owners of the jobs.
            within: how long they have to end before they are killed, as a duration; 30s by default.
        """
        return self.drive(controlled("evict", ids, filters, calls.eviction(mode, reason, within)))

    def evict_nodes(self, *names: str, mode: str = "requeue", reason: str = "", within: str = "") -> list[Outcome]:
        """Make all that runs on these nodes leave, as `evict`; one outcome for each node. New work may start there."""
        details = calls.eviction(mode, reason, within) | {"nodes": list(names)}
        return list(self.call(calls.control("evict", (), details=details)))

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> list[NodeInfo]:
        """List all nodes, by name."""
        return list(self.call(calls.nodes()))

    def node(self, name: str) -> NodeInfo:
        """Find a node by its name.

        Raises:
            NotFoundError: there is none of that name.
        """
        return self.call(calls.node(name))

    def fence(self, name: str, *, machine_gone: bool = False, reason: str = "") -> NodeInfo:
        """Declare a node lost: its attempts are lost and their tasks run again. Nothing may run there any more.

        Args:
            machine_gone: its machine no longer exists: it may be in any state, and stays closed to the same boot.
            reason: one line for people.
        Raises:
            ConflictError: it is not unreachable, and its machine exists.
        """
        return self.call(calls.fence(name, machine_gone, reason))

    def cordon(self, *names: str, reason: str = "") -> list[Outcome]:
        """Close nodes to new work until they are uncordoned; what runs continues. One outcome for each."""
        return list(self.call(calls.control_nodes("cordon", names, reason)))

    def uncordon(self, *names: str) -> list[Outcome]:
        """Open nodes to new work, unless something other than a person keeps them closed (`detail` names it)."""
        return list(self.call(calls.control_nodes("uncordon", names)))

    def drain(self, *names: str, reason: str = "", evict: str = "", within: str = "", grace: str = "") -> list[Outcome]:
        """Close nodes to new work so that they become empty; `wait_drained` waits for that.

        Args:
            evict: how what does not end by itself is evicted (`requeue`, `checkpoint`, `cancel`); empty: it may run on.
            within: how long it may run on before that, as a duration; at once by default.
            grace: how long it then has to end before it is killed; 30s by default.
        """
        texts = {"evict": evict, "within": within, "grace": grace}
        details = {name: text for name, text in texts.items() if text}
        return list(self.call(calls.control_nodes("drain", names, reason, details)))

    def wait_drained(
        self, name: str, timeout: float | None = None, *, seen: Callable[[NodeInfo], None] = lambda node: None
    ) -> NodeInfo:
        """Wait until a node holds nothing any more, or is no longer being drained; `seen` gets it each second.

        Raises:
            TimedOutError: it still holds something after `timeout` seconds.
            NotFoundError: there is no such node, or no longer.
        """
        return self.drive(emptied(name, timeout, clock=time.monotonic, seen=seen, round_s=DRAIN_ROUND_S))

    def remove_nodes(self, *names: str) -> list[Outcome]:
        """Remove nodes that are lost or closed, and hold nothing. One that connects again is a new node."""
        return list(self.call(calls.control_nodes("remove", names)))

    def offers(self) -> list[OfferInfo]:
        """List the machines that could be rented."""
        from hal.client.rest import offer_calls

        return list(self.call(offer_calls.offers()))

    def put_offer(
        self,
        name: str,
        resources: Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        count: int = 1,
        price_microusd_per_hour: int | None = None,
        expires_in: str = "1h",
    ) -> OfferInfo:
        """Offer machines that could be rented, or offer them again, in place of what this name offered before.

        Jobs that none of the nodes could hold are accepted if one of these machines could, and wait; for operators.

        Args:
            resources: of one machine, as a job asks for them: `{"cpu": 64, "memory": "256GiB"}`.
            labels: that each would have as a node.
            count: how many could be rented.
            price_microusd_per_hour: of one machine, in millionths of a dollar; informs people only.
            expires_in: how long the offer holds unless it is made again.
        Raises:
            SpecError: something in it is out of bounds.
        """
        from hal.client.rest import offer_calls

        fields = {"resources": dict(resources), "labels": dict(labels or {}), "count": count, "expires_in": expires_in}
        if price_microusd_per_hour is not None:
            fields["price_microusd_per_hour"] = price_microusd_per_hour
        return self.call(offer_calls.put_offer(name, fields))

    def withdraw_offer(self, name: str) -> OfferInfo:
        """Withdraw an offer, and return what it was; jobs that wait for it wait on.

        Raises:
            NotFoundError: there is none of that name.
        """
        from hal.client.rest import offer_calls

        return self.call(offer_calls.withdraw_offer(name))

    # ── policy ────────────────────────────────────────────────────────────────────────────────────────────────────

    def wants(self) -> WantsInfo:
        """Read what waits for nodes, by class, and what it is short of; users read about their own jobs."""
        from hal.client.rest import ask_calls

        return self.call(ask_calls.wants())

    def plan(self) -> PlanInfo:
        """Read which waiting jobs have nodes reserved, and when; users read about their own jobs."""
        from hal.client.rest import ask_calls

        return self.call(ask_calls.plan())

    def queues(self) -> list[QueueInfo]:
        """List all queues."""
        return list(self.call(calls.queues()))

    def access(self, user: str = "") -> AccessInfo:
        """Explain what a user may do, and why; '': the caller. Of others only for operators.

        Raises:
            DeniedError: it is somebody else, and the caller is no operator.
        """
        from hal.client.rest import access_calls

        return self.call(access_calls.access(user))

    def policy(self, version: int | None = None) -> PolicyInfo:
        """Read the active policy, or that version of it.

        Raises:
            NotFoundError: the version is not kept.
        """
        from hal.client.rest import policy_calls

        return self.call(policy_calls.policy(version))

    def change_policy(
        self, *operations: Operation, version: int | None = None, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """Apply all of these operations to the policy in one commit, or none.

        Args:
            version: only if this version is active; None: whichever is.
            dry_run: change nothing; the answer holds what would change, and what that means for live jobs.
        Raises:
            ConflictError: another version is active, or an entry to add exists already.
            SpecError, NotFoundError: it cannot be done; nothing was changed.
        """
        from hal.client.rest import policy_calls

        return self.call(policy_calls.change_policy(operations, version=version, dry_run=dry_run, note=note))

    def put_policy(
        self, policy: Mapping[str, Any], *, version: int, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """Replace that version of the policy by another policy (plain data, as in hal.toml).

        Raises: as `change_policy`.
        """
        from hal.client.rest import policy_calls

        return self.call(policy_calls.put_policy(policy, version=version, dry_run=dry_run, note=note))

    def licences(self) -> list[LicenceInfo]:
        """List licences: total, used, booked, free."""
        from hal.client.rest import policy_calls

        return list(self.call(policy_calls.licences()))

    def advice(self) -> list[AdviceInfo]:
        """List the kinds of advice that are held."""
        from hal.client.rest import advice_calls

        return list(self.call(advice_calls.kinds()))

    def advice_values(self, kind: str) -> dict[str | int, float]:
        """Read a kind of advice: its keys (job ids as numbers) and their values.

        Raises:
            NotFoundError: nothing is held of it.
        """
        from hal.client.rest import advice_calls

        values: dict[str | int, float] = {}
        cursor = ""
        while True:
            page = self.call(advice_calls.page(kind, cursor=cursor))
            values.update(zip(page.keys, page.values, strict=False))
            if not page.cursor or page.cursor == cursor:
                return values
            cursor = page.cursor

    def put_advice(
        self,
        kind: str,
        values: Mapping[str, float | None] | Mapping[int, float | None],
        *,
        space: str,
        delta: bool = False,
        version: int | None = None,
        base: int | None = None,
        expires_in: str | float | None = None,
    ) -> AdvicePut:
        """Put advice for policies to read, for operators.

        Args:
            values: by key, at most 50,000; None: none.
            space: what the keys name: nodes, queues, accounts, users or jobs.
            delta: change these keys only; else they are all there is.
            version: ascending; None: one more than the version held.
            base: for a delta, the version that it changes.
            expires_in: how long it holds, "10m" or seconds; None: five minutes.
        Raises:
            ConflictError: another version is held than `base`, or a newer one than `version`: put it whole.
        """
        from hal.client.rest import advice_calls

        return self.call(
            advice_calls.put(kind, values, space=space, delta=delta, version=version, base=base, expires_in=expires_in)
        )

    def withdraw_advice(self, kind: str) -> AdviceInfo:
        """Withdraw a kind of advice, and return what was held.

        Raises:
            NotFoundError: nothing is held of it.
        """
        from hal.client.rest import advice_calls

        return self.call(advice_calls.withdraw(kind))

    def shares(self) -> list[ShareInfo]:
        """Read the tree of shares: what accounts and users are entitled to, and what they have used."""
        return list(self.call(calls.shares()))

    def ledgers(self) -> list[LedgerInfo]:
        """Read how much of each limit is in use."""
        return list(self.call(calls.ledgers()))

    def priority(self, job: int) -> PriorityInfo:
        """Read the priority of a pending job, factor by factor.

        Raises:
            NotFoundError: no such job.
            ConflictError: it does not wait for resources.
        """
        return self.call(calls.priority(job))

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────────

    def health(self) -> HealthInfo:
        """Read the controller's health."""
        return self.call(calls.health())

    def version(self) -> dict[str, Any]:
        """Read the controller's version."""
        return self.call(calls.version())

    def events(
        self, after: int | None = None, *, follow: bool = False, job: str | int | None = None
    ) -> Iterator[EventInfo]:
        """Read the durable feed of events, in commit order.

        Args:
            after: begin behind this sequence number; None: from the first kept one, or with `follow` from now on.
            follow: do not end, but wait for more; resumes by itself after a restart of the controller.
            job: only events about this job.
        """
        job_id = "" if job is None else str(job)
        if not follow:
            return Player(self.connections).items(past_events(after or 0, job_id))
        feed = followed_events(
            after, job_id, address=self.address, reconnect_s=self.connections.reconnect_s, clock=time.monotonic
        )
        return Player(self.connections).items(feed)

    def attempts(
        self,
        after: str | None = None,
        *,
        newest: int | None = None,
        follow: bool = False,
        reader: str = "",
        on_lost: OnLost = ignore_lost,
        **filters: Any,
    ) -> Iterator[EndedAttemptInfo]:
        """Read ended attempts in the order of the commits that ended them.

        Args:
            after: begin behind this cursor (`str(info.sequence)` of the last one that was read); None: from the oldest
                that is kept, or where the reader was.
            newest: begin with the last so many instead, at most 5,000.
            follow: do not end, but wait for more; continues by itself after a lost connection.
            reader: name of a registered reader: what the iterator has passed counts as read by it.
            on_lost: called with the first and last sequence number of attempts that are no longer kept.
            filters: state (a list means any of them), job, user, node, since_ms, until_ms.
        Raises:
            SpecError: a filter that does not exist.
            NotFoundError: there is no reader of that name.
            ConflictError: the cursor is ahead of what is stored: the store was replaced.
        """
        flow = ended_attempts(
            attempt_filters(filters),
            after or "",
            newest=newest,
            follow=follow,
            reader=reader,
            on_lost=on_lost,
            reconnect_s=self.connections.reconnect_s,
            clock=time.monotonic,
        )
        return Player(self.connections).items(flow)

    def call(self, call: Call[T]) -> T:
        """Send one call of REST /v1 and read its answer."""
        return call.read(self.connections.send(call.request))

    def drive(self, steps: Steps[T]) -> T:
        """Send the calls that it yields, one after the other; returns its result."""
        return Player(self.connections).result(steps)

    def paged(self, call: Callable[[int, str], Call[Page[T]]], limit: int | None) -> Iterator[T]:
        """Read the items of all pages of a listing; `call` gets a page's size and the cursor of the page before."""
        return Player(self.connections).items(paged(call, limit))


def _restored(address: Address, reconnect_s: float) -> Client:
    return Client(address, reconnect_s=reconnect_s)
