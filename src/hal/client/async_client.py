"""The asyncio client. `sync_client.py` is generated from this file by tools/sync_client.py: edit this one only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from hal.client.address_lookup import find_address
from hal.client.addresses.address import Address
from hal.client.async_job import AsyncJob
from hal.client.flows.async_player import AsyncPlayer
from hal.client.flows.async_work import on_thread
from hal.client.flows.ended_attempts import OnLost, ended_attempts, ignore_lost
from hal.client.flows.steps import (
    DRAIN_ROUND_S,
    Flow,
    Steps,
    controlled,
    emptied,
    failed_with,
    followed_events,
    paged,
    past_events,
    removed,
)
from hal.client.rest import calls
from hal.client.rest.calls import Call, Page, Submitted
from hal.client.rest.feed_calls import EndedAttemptInfo, attempt_filters
from hal.client.rest.outcome import ids_of
from hal.client.rest.views import (
    EventInfo,
    HealthInfo,
    JobInfo,
    LedgerInfo,
    NodeInfo,
    NotificationsInfo,
    Outcome,
    PriorityInfo,
    QueueInfo,
    ShareInfo,
)
from hal.client.transport.async_http import AsyncConnections
from hal.client.transport.exchange import RECONNECT_S
from hal.core.model import SpecError
from hal.core.model.taint import taints_of

if TYPE_CHECKING:
    from hal.client.rest.access_calls import AccessInfo
    from hal.client.rest.advice_calls import AdviceInfo, AdvicePut
    from hal.client.rest.ask_calls import PlanInfo, WantsInfo
    from hal.client.rest.cron_calls import CronInfo, CronRunInfo
    from hal.client.rest.plane_calls import PlaneInfo
    from hal.client.rest.policy_views import LicenceInfo, PolicyChange, PolicyInfo
    from hal.client.rest.secret_calls import KeyChange, SecretInfo
    from hal.client.rest.service_calls import ServiceInfo
    from hal.client.rest.topology_calls import TopologyInfo
    from hal.client.sessions.opening import OpenedSession, ShapeOptions, SlotOptions
    from hal.client.specs import JobOptions
    from hal.client.submission import SpecLike
    from hal.core.model.offer import Offer
    from hal.core.model.policy_change import Operation

T = TypeVar("T")


class AsyncClient:
    """A connection to one HAL. Make it with `await hal.aconnect()`, and close it or use it as a context manager.

    A controller that is restarted is waited for (`RECONNECT_S`); every error derives from `hal.HALError`.
    """

    def __init__(self, address: Address | None = None, *, reconnect_s: float = RECONNECT_S) -> None:
        """Open no connection yet.

        Args:
            address: default: as `hal.connect()` finds it.
            reconnect_s: how long a controller that answered before is waited for when it stops answering.
        """
        self.connections = AsyncConnections(address or find_address(), reconnect_s=reconnect_s)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.address.named!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled client holds its address, token included; the copy has connections of its own."""
        return _restored, (self.address, self.connections.reconnect_s)

    @property
    def address(self) -> Address:
        """The HAL that it talks to."""
        return self.connections.address

    async def aclose(self) -> None:
        """Close its connections; every later call is refused."""
        await self.connections.aclose()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def submit(
        self,
        what: str | Sequence[str] | SpecLike | None = None,
        *,
        idempotency_key: str | None = None,
        progress: bool = False,
        **options: Unpack[JobOptions],
    ) -> AsyncJob: ...

    @overload
    async def submit(
        self, what: Sequence[SpecLike], *, idempotency_key: str | None = None, progress: bool = False
    ) -> list[AsyncJob]: ...

    async def submit(
        self,
        what: str | Sequence[str] | SpecLike | Sequence[SpecLike] | None = None,
        *,
        idempotency_key: str | None = None,
        progress: bool = False,
        **options: Unpack[JobOptions],
    ) -> AsyncJob | list[AsyncJob]:
        """Submit one job (a command with keywords, or a whole spec) or several (a list of specs, all or none).

        Args:
            what: program and arguments; text for /bin/sh; a `JobSpec`; plain data as in a spec file; or a list of the
                last two. None with `script=`.
            idempotency_key: a second submission with the same key returns the jobs of the first.
            progress: show how much of the directories that they ship was sent, on the terminal or in a notebook.
            options: the keywords of `hal.JobOptions`, which docs/python.md describes.
        Raises:
            SpecError: malformed, or it can never run; nothing was submitted.
            UnreachableError, OverloadedError: nothing was submitted.
        """
        from hal.client.submission import sort_out

        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        if any(spec.ship for spec in submission.specs):
            from hal.client.flows.shipping import submitted

            answer = await self.drive(submitted(submission.specs, key=idempotency_key, progress=progress))
        else:
            answer = await self.call(calls.submit(submission.specs, key=idempotency_key))
        jobs = [AsyncJob(self, job) for job in ids_of(answer)]
        return jobs if submission.many else jobs[0]

    async def check(
        self, what: str | Sequence[str] | SpecLike | Sequence[SpecLike], **options: Unpack[JobOptions]
    ) -> list[str]:
        """Check what `submit` would submit, without submitting it; return what there is to know about it all the same:
        that no node has joined, or why a job with `wait_for_change` could not start now.

        Raises:
            SpecError: it would be refused.
        """
        return list((await self.dry_run(what, **options)).warnings)

    async def dry_run(
        self, what: str | Sequence[str] | SpecLike | Sequence[SpecLike], **options: Unpack[JobOptions]
    ) -> Submitted:
        """Do all that `submit` would do, without submitting it.

        The answer has `warnings`, as of `check`, and for up to eight jobs `forecasts`: when each would start, in their
        order.

        Raises:
            SpecError: it would be refused.
        """
        from hal.client.submission import sort_out

        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        if any(spec.ship for spec in submission.specs):
            from hal.client.flows.shipping import submitted

            return await self.drive(submitted(submission.specs, key=None, dry_run=True))
        return await self.call(calls.submit(submission.specs, dry_run=True))

    async def job(self, job_id: str | int) -> AsyncJob:
        """Find a job by its id.

        Raises:
            NotFoundError: there is none.
        """
        job = AsyncJob(self, str(job_id))
        await job.refresh()
        return job

    def jobs(self, *, limit: int | None = None, **filters: Any) -> AsyncIterator[JobInfo]:
        """List jobs, newest first, page by page as they are consumed.

        Args:
            limit: stop after so many.
            filters: state (a list means any of them), user, queue, name, account, label (a list or dict: all); node
                (that it runs on now), submitted_from_ms, submitted_before_ms; reasons=True also shows why each that
                waits does (`waiting`), placed=True where each runs (`placement`).
        """
        known = calls.filters_of(filters, listing=True)
        return self.paged(lambda size, cursor: calls.jobs(known, limit=size, cursor=cursor), limit)

    async def wait_all(
        self,
        jobs: Iterable[AsyncJob | str | int],
        timeout: float | None = None,
        *,
        check: bool = False,
        progress: bool = False,
    ) -> list[JobInfo]:
        """Wait until all of these jobs have ended.

        Args:
            timeout: seconds for all together; None: no limit.
            check: raise if one did not succeed, when all have ended.
            progress: show how many have ended in a line of the terminal, or of a notebook.
        Returns: in the given order.
        Raises:
            TimedOutError: not all have ended by then; they continue.
            JobFailedError: with `check`, for the first of them, in the given order, that did not succeed.
        """
        ids = [str(job) for job in jobs]
        ends: dict[str, JobInfo] = {}
        from hal.client.progress_line import ProgressLine

        with ProgressLine(shown=progress) as line:
            line.show(f"0 of {len(ids)} jobs have ended")
            async for info in self.as_ended(ids, timeout):
                ends[info.id] = info
                line.show(f"{len(ends)} of {len(ids)} jobs have ended")
        for one in ids if check else ():
            if ends[one].state != "succeeded":
                raise await self.drive(failed_with(ends[one]))
        return [ends[one] for one in ids]

    def as_ended(self, jobs: Iterable[AsyncJob | str | int], timeout: float | None = None) -> AsyncIterator[JobInfo]:
        """Give each of these jobs as soon as it has ended, in the order in which they end.

        Args:
            timeout: seconds for all together; None: no limit.
        Raises:
            TimedOutError: not all have ended by then; they continue.
        """
        from hal.client.flows.async_completion import as_ended

        return as_ended(self.connections, list(dict.fromkeys(str(job) for job in jobs)), timeout)

    async def cancel(self, *ids: str | int, dry_run: bool = False, **filters: Any) -> list[Outcome]:
        """Cancel jobs (`42`) and tasks (`42.7`, `42.7-9`, `42[1,3-5]` by HAL_ARRAY_INDEX) by id, or all that a filter
        selects; one outcome for each.

        Args:
            filters: state, user, queue, name, account, label. The state is that of tasks; beside ids it alone may be
                given: of what they name, only tasks in that state.
            dry_run: change nothing; the outcomes say how many tasks it would be.
        """
        return await self.drive(controlled("cancel", ids, filters, dry_run=dry_run))

    async def hold(self, *ids: str | int, dry_run: bool = False, **filters: Any) -> list[Outcome]:
        """Hold jobs or tasks, named as for `cancel`, so that what has not started does not start."""
        return await self.drive(controlled("hold", ids, filters, dry_run=dry_run))

    async def release(self, *ids: str | int, dry_run: bool = False, **filters: Any) -> list[Outcome]:
        """Release held jobs or tasks, named as for `cancel`."""
        return await self.drive(controlled("release", ids, filters, dry_run=dry_run))

    async def requeue(self, *ids: str | int, dry_run: bool = False, **filters: Any) -> list[Outcome]:
        """Stop running tasks and let them, or ended ones, run again as a new attempt; named as for `cancel`.

        Of a whole job: the tasks that did not succeed, or all if every one did. With `state`, and of a job by task:
        all that are named.
        """
        return await self.drive(controlled("requeue", ids, filters, dry_run=dry_run))

    async def remove(
        self, *ids: str | int, ended_before: str | datetime | None = None, **filters: Any
    ) -> list[Outcome]:
        """Remove ended jobs, or some of their tasks (`42.7-9`), with attempts and outputs, by id or by filter; one
        outcome for each.

        Args:
            ended_before: all that ended before this instant (`now-30d`), or those of them that the filter selects.
            filters: as for `cancel`; beside ids, `state` alone: of what they name, only tasks that ended so.
        Raises:
            SpecError: no instant, or together with ids.
        """
        from hal.client.instants import instant_ms

        before_ms = None if ended_before is None else instant_ms(ended_before, "ended_before")
        if ids and (set(filters) - {"state"} or before_ms is not None):
            raise SpecError(
                "remove: ids and filters cannot be combined", hint="name the jobs, or filter by what they are"
            )
        return await self.drive(removed(ids, filters, before_ms))

    async def evict(
        self,
        *ids: str | int,
        mode: str = "requeue",
        reason: str = "",
        within: str = "",
        dry_run: bool = False,
        **filters: Any,
    ) -> list[Outcome]:
        """Make running jobs and tasks leave, named as for `cancel`; for operators.

        Args:
            mode: `requeue` or `checkpoint` (they run again, no retry is counted), or `cancel`.
            reason: one line for the owners of the jobs.
            within: how long they have to end before they are killed, as a duration; 30s by default.
        """
        return await self.drive(
            controlled("evict", ids, filters, calls.eviction(mode, reason, within), dry_run=dry_run)
        )

    async def evict_nodes(
        self, *names: str, mode: str = "requeue", reason: str = "", within: str = ""
    ) -> list[Outcome]:
        """Make all that runs on these nodes leave, as `evict`; one outcome for each node. New work may start there."""
        details = calls.eviction(mode, reason, within) | {"nodes": list(names)}
        return list(await self.call(calls.control("evict", (), details=details)))

    async def session(
        self,
        slots: int | tuple[int, int] = (1, 8),
        *,
        name: str = "",
        linger: int = 30,
        keep: float = 15.0,
        python: str = sys.executable,
        timeout: float = 300.0,
        durable: bool = False,
        shapes: Mapping[str, ShapeOptions] | None = None,
        threads: int = 1,
        worker_memory: int | str | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        shards: int = 0,
        slots_per_broker: int = 1_000,
        **options: Unpack[SlotOptions],
    ) -> OpenedSession:
        """Open a session: an executor (`concurrent.futures`) whose tasks run in slots of this HAL (docs/sessions.md).

        It has connections of its own. With asyncio, `asyncio.wrap_future` awaits its futures, and its `shutdown`, which
        waits, is called with `asyncio.to_thread`.

        Args:
            slots: how many, or (least, most): the others run while there is something to do, and leave first for
                other work.
            name: by which `find_session` finds it.
            linger: seconds after which it ends when no client is connected; a durable one also has to have run all
                tasks.
            keep: seconds for which slots without a task are kept.
            python: the interpreter of broker and workers; it must have HAL.
            timeout: seconds until which its broker must run.
            durable: what is submitted outlives broker, workers and this program. If there is a durable session of that
                name, this continues it: `recovered` has the futures of what was not received.
            shapes: further shapes of slots by name, each with `slots` and what they ask for; `options(shape=…)` of the
                session submits tasks to them.
            threads: tasks that each slot runs at once, in threads of its worker.
            worker_memory: what a worker's process may have before it is replaced, between two tasks; default: nine
                tenths of the slot's memory. 0: as much as it likes.
            initializer, initargs: called in each worker before the first task of this client there.
            shards: brokers that share its tasks and slots; 0: one for each `slots_per_broker` slots.
            slots_per_broker: how many slots one broker serves.
            options: what each slot asks for: cpus, memory, gpus, queue, account and more, as for `submit`.
        Raises:
            SpecError: malformed, or it can never run.
            ConflictError: there is a session of that name that cannot be continued, or no node of this machine.
            TimedOutError: its broker did not begin in time; nothing is left of it.
        """
        from hal.client.sessions.opening import open_session
        from hal.client.sync_client import Client

        opening = partial(
            open_session, Client(self.address), slots, name, linger, keep, python, timeout, options, durable, shapes,
            threads, worker_memory, initializer, initargs, shards, slots_per_broker,
        )  # fmt: skip
        return await on_thread(opening)

    async def find_session(self, name: str, *, client: str = "") -> OpenedSession:
        """Connect to a session of yours that was opened on this machine.

        Args:
            client: of a durable session: a name of this program's own, with which it finds in `recovered` what it
                submitted before.
        Raises:
            NotFoundError: there is none of that name.
            UnreachableError: its broker does not answer.
        """
        from hal.client.sessions.opening import find_session
        from hal.client.sync_client import Client

        opening = partial(find_session, Client(self.address), name, client)
        return await on_thread(opening)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> list[NodeInfo]:
        """List all nodes, by name."""
        return list(await self.call(calls.nodes()))

    async def node(self, name: str) -> NodeInfo:
        """Find a node by its name.

        Raises:
            NotFoundError: there is none of that name.
        """
        return await self.call(calls.node(name))

    async def topology(self) -> TopologyInfo:
        """Show which domains (racks, zones, switches) there are, and how much of each is used."""
        from hal.client.rest import topology_calls

        return await self.call(topology_calls.topology())

    async def fence(self, name: str, *, machine_gone: bool = False, reason: str = "") -> NodeInfo:
        """Declare a node lost: its attempts are lost and their tasks run again. Nothing may run there any more.

        Args:
            machine_gone: its machine no longer exists: it may be in any state, and stays closed to the same boot.
            reason: one line for people.
        Raises:
            ConflictError: it is not unreachable, and its machine exists.
        """
        return await self.call(calls.fence(name, machine_gone, reason))

    async def cordon(self, *names: str, reason: str = "") -> list[Outcome]:
        """Close nodes to new work until they are uncordoned; what runs continues. One outcome for each."""
        return list(await self.call(calls.control_nodes("cordon", names, reason)))

    async def taint(self, *names: str, taints: str | Sequence[str] | Mapping[str, str]) -> list[Outcome]:
        """Keep work away from nodes that does not tolerate these taints (`KEY`, `KEY=VALUE`); what runs continues."""
        texts = [taints] if isinstance(taints, str) else taints
        by_key = dict(texts) if isinstance(texts, Mapping) else taints_of(texts)
        return list(await self.call(calls.control_nodes("taint", names, details={"taints": by_key})))

    async def untaint(self, *names: str, keys: str | Sequence[str]) -> list[Outcome]:
        """Take the taints of these keys from nodes. One outcome for each."""
        listed = [keys] if isinstance(keys, str) else list(keys)
        return list(await self.call(calls.control_nodes("untaint", names, details={"keys": listed})))

    async def uncordon(self, *names: str) -> list[Outcome]:
        """Open nodes to new work, unless something other than a person keeps them closed (`detail` names it)."""
        return list(await self.call(calls.control_nodes("uncordon", names)))

    async def drain(
        self, *names: str, reason: str = "", evict: str = "", within: str = "", grace: str = "", move: bool = False
    ) -> list[Outcome]:
        """Close nodes to new work so that they become empty; `wait_drained` waits for that.

        Args:
            move: of one node: only if all work there may be moved, has room elsewhere, and that pays; it leaves now.
            evict: how what does not end by itself is evicted (`requeue`, `checkpoint`, `cancel`); empty: it may run on.
            within: how long it may run on before that, as a duration; at once by default.
            grace: how long it then has to end before it is killed; 30s by default.
        """
        texts = {"evict": evict, "within": within, "grace": grace}
        details: dict[str, Any] = {name: text for name, text in texts.items() if text}
        if move:
            details["move"] = True
        return list(await self.call(calls.control_nodes("drain", names, reason, details)))

    async def wait_drained(
        self, name: str, timeout: float | None = None, *, seen: Callable[[NodeInfo], None] = lambda node: None
    ) -> NodeInfo:
        """Wait until a node holds nothing any more, or is no longer being drained; `seen` gets it each second.

        Raises:
            TimedOutError: it still holds something after `timeout` seconds.
            NotFoundError: there is no such node, or no longer.
        """
        return await self.drive(emptied(name, timeout, clock=time.monotonic, seen=seen, round_s=DRAIN_ROUND_S))

    async def remove_nodes(self, *names: str) -> list[Outcome]:
        """Remove nodes that are lost or closed, and hold nothing. One that connects again is a new node."""
        return list(await self.call(calls.control_nodes("remove", names)))

    async def service(self, name: str, *, user: str = "") -> ServiceInfo:
        """Look a service up by name: where those of its tasks are reached that are ready.

        Args:
            user: whose it is; yours, if it is left out.
        Raises:
            NotFoundError: no live job of that name is a service.
        """
        from hal.client.rest import service_calls

        return await self.call(service_calls.service(name, user))

    async def offers(self) -> list[Offer]:
        """List the machines that could be rented."""
        from hal.client.rest import offer_calls

        return list(await self.call(offer_calls.offers()))

    async def put_offer(
        self,
        name: str,
        resources: Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        count: int = 1,
        price_microusd_per_hour: int | None = None,
        expires_in: str = "1h",
    ) -> Offer:
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
        return await self.call(offer_calls.put_offer(name, fields))

    async def withdraw_offer(self, name: str) -> Offer:
        """Withdraw an offer, and return what it was; jobs that wait for it wait on.

        Raises:
            NotFoundError: there is none of that name.
        """
        from hal.client.rest import offer_calls

        return await self.call(offer_calls.withdraw_offer(name))

    # ── policy ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def wants(self) -> WantsInfo:
        """Read what waits for nodes, by class, and what it is short of; users read about their own jobs."""
        from hal.client.rest import ask_calls

        return await self.call(ask_calls.wants())

    async def plan(self) -> PlanInfo:
        """Read which waiting jobs have nodes reserved, and when; users read about their own jobs."""
        from hal.client.rest import ask_calls

        return await self.call(ask_calls.plan())

    async def queues(self) -> list[QueueInfo]:
        """List all queues."""
        return list(await self.call(calls.queues()))

    async def access(self, user: str = "") -> AccessInfo:
        """Explain what a user may do, and why; '': the caller. Of others only for operators.

        Raises:
            DeniedError: it is somebody else, and the caller is no operator.
        """
        from hal.client.rest import access_calls

        return await self.call(access_calls.access(user))

    async def policy(self, version: int | None = None) -> PolicyInfo:
        """Read the active policy, or that version of it.

        Raises:
            NotFoundError: the version is not kept.
        """
        from hal.client.rest import policy_calls

        return await self.call(policy_calls.policy(version))

    async def change_policy(
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

        return await self.call(policy_calls.change_policy(operations, version=version, dry_run=dry_run, note=note))

    async def put_policy(
        self, policy: Mapping[str, Any], *, version: int, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """Replace that version of the policy by another policy (plain data, as in hal.toml).

        Raises: as `change_policy`.
        """
        from hal.client.rest import policy_calls

        return await self.call(policy_calls.put_policy(policy, version=version, dry_run=dry_run, note=note))

    async def licences(self) -> list[LicenceInfo]:
        """List licences: total, used, booked, free."""
        from hal.client.rest import policy_calls

        return list(await self.call(policy_calls.licences()))

    async def planes(self) -> list[PlaneInfo]:
        """List the planes that have announced where they are reached."""
        from hal.client.rest import plane_calls

        return list(await self.call(plane_calls.planes()))

    async def announce_plane(
        self,
        name: str,
        *,
        rest: Sequence[str] = (),
        wire: Sequence[str] = (),
        version: str = "",
        expires_in: str | float | None = None,
    ) -> PlaneInfo:
        """Announce where a plane is reached, for operators; it expires unless it is announced again.

        Args:
            rest: for people and programs: "unix:/PATH", "https://HOST:PORT".
            wire: for HAL's processes: "unix:/PATH", "HOST:PORT".
            expires_in: how long it holds, "90s" or seconds; None: one minute.
        """
        from hal.client.rest import plane_calls

        return await self.call(plane_calls.announce(name, rest=rest, wire=wire, version=version, expires_in=expires_in))

    async def withdraw_plane(self, name: str) -> PlaneInfo:
        """Withdraw a plane, and return what was known of it.

        Raises:
            NotFoundError: it is not announced.
        """
        from hal.client.rest import plane_calls

        return await self.call(plane_calls.withdraw(name))

    async def advice(self) -> list[AdviceInfo]:
        """List the kinds of advice that are held."""
        from hal.client.rest import advice_calls

        return list(await self.call(advice_calls.kinds()))

    async def advice_values(self, kind: str) -> dict[str | int, float]:
        """Read a kind of advice: its keys (job ids as numbers) and their values.

        Raises:
            NotFoundError: nothing is held of it.
        """
        from hal.client.rest import advice_calls

        values: dict[str | int, float] = {}
        cursor = ""
        while True:
            page = await self.call(advice_calls.page(kind, cursor=cursor))
            values.update(zip(page.keys, page.values, strict=False))
            if not page.cursor or page.cursor == cursor:
                return values
            cursor = page.cursor

    async def put_advice(
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

        return await self.call(
            advice_calls.put(kind, values, space=space, delta=delta, version=version, base=base, expires_in=expires_in)
        )

    async def withdraw_advice(self, kind: str) -> AdviceInfo:
        """Withdraw a kind of advice, and return what was held.

        Raises:
            NotFoundError: nothing is held of it.
        """
        from hal.client.rest import advice_calls

        return await self.call(advice_calls.withdraw(kind))

    async def add_cron(
        self,
        name: str,
        schedule: str,
        what: str | Sequence[str] | SpecLike | None = None,
        /,
        *,
        zone: str = "UTC",
        overlap: str = "skip",
        catch_up: str = "none",
        keep: int | None = None,
        replace: bool = False,
        **options: Unpack[JobOptions],
    ) -> CronInfo:
        """Make a periodic job: one that is submitted at each due time of a schedule.

        Args:
            schedule: five fields of cron, or @hourly, @daily, @weekly, @monthly, @yearly.
            what: the job, as for `submit`.
            zone: the time zone of the schedule, such as "Europe/Berlin".
            overlap: while an earlier job has not ended: "skip", "queue", "replace" or "allow".
            catch_up: after due times that passed while HAL was down: "none", or "one" job for all of them.
            keep: entries of its history; None: 50.
            replace: change the one of this name.
            options: the keywords of `hal.JobOptions`; with `user`, an operator makes it for somebody else.
        Raises:
            SpecError: the schedule or the job cannot be accepted.
            ConflictError: there is one of this name.
        """
        from hal.client.rest import cron_calls
        from hal.client.submission import sort_out

        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        if submission.many:
            raise SpecError("add_cron: a list of jobs", hint="a periodic job submits one job; an array has many tasks")
        (spec,) = submission.specs
        return await self.call(
            cron_calls.put_cron_job(
                name,
                schedule,
                spec,
                zone=zone,
                overlap=overlap,
                catch_up=catch_up,
                keep=keep,
                user=spec.user,
                replace=replace,
            )
        )

    def cron_jobs(self, *, user: str = "", limit: int | None = None) -> AsyncIterator[CronInfo]:
        """List your periodic jobs, oldest first; for operators, all or those of a user."""
        from hal.client.rest import cron_calls

        return self.paged(lambda size, cursor: cron_calls.cron_jobs(user, limit=size, cursor=cursor), limit)

    async def cron_job(self, name: str, *, user: str = "") -> CronInfo:
        """Show a periodic job.

        Raises:
            NotFoundError: there is none.
        """
        from hal.client.rest import cron_calls

        return await self.call(cron_calls.cron_job(name, user))

    async def hold_cron(self, name: str, *, user: str = "") -> CronInfo:
        """Hold a periodic job: nothing of it is submitted until it is resumed.

        Raises:
            NotFoundError: there is none.
        """
        from hal.client.rest import cron_calls

        return await self.call(cron_calls.hold_cron_job(name, user))

    async def resume_cron(self, name: str, *, user: str = "") -> CronInfo:
        """Resume a periodic job, from its next due time on.

        Raises:
            NotFoundError: there is none.
        """
        from hal.client.rest import cron_calls

        return await self.call(cron_calls.resume_cron_job(name, user))

    async def run_cron(self, name: str, *, user: str = "") -> AsyncJob:
        """Submit the job of a periodic job now, whatever schedule and overlap policy say.

        Raises:
            NotFoundError: there is none.
            SpecError, ConflictError, DeniedError: the job is refused.
        """
        from hal.client.rest import cron_calls

        return AsyncJob(self, (await self.call(cron_calls.run_cron_job(name, user))).job)

    async def remove_cron(self, name: str, *, user: str = "") -> CronInfo:
        """Remove a periodic job with its history; jobs that it submitted go on.

        Raises:
            NotFoundError: there is none.
        """
        from hal.client.rest import cron_calls

        return await self.call(cron_calls.remove_cron_job(name, user))

    def cron_history(self, name: str, *, user: str = "", limit: int | None = None) -> AsyncIterator[CronRunInfo]:
        """List what became of the due times of a periodic job, newest first.

        Raises:
            NotFoundError: there is none.
        """
        from hal.client.rest import cron_calls

        return self.paged(lambda size, cursor: cron_calls.cron_history(name, user, limit=size, cursor=cursor), limit)

    async def secrets(self) -> list[SecretInfo]:
        """List secrets, without their values: those that your jobs may use, and those of accounts that you coordinate;
        for operators, all."""
        from hal.client.rest import secret_calls

        return list(await self.call(secret_calls.secrets()))

    async def set_secret(self, name: str, value: bytes | str, *, account: str = "") -> SecretInfo:
        """Create or replace a secret of yours.

        Args:
            value: 1 byte to 64 KiB; text is encoded as UTF-8.
            account: set it for the jobs of this closed account instead; for its coordinators and admins.
        Raises:
            SpecError: its name or its size, or an account that is not closed.
            DeniedError: the account is not yours to change, or a job asks.
        """
        from hal.client.rest import secret_calls

        data = value.encode() if isinstance(value, str) else value
        return await self.call(secret_calls.set_secret(name, data, account=account))

    async def remove_secret(self, name: str, *, account: str = "", user: str = "") -> SecretInfo:
        """Remove a secret of yours, of an account, or (operators) of another user. Steps that have it keep it until
        they end; later starts of jobs that name it fail.

        Raises:
            NotFoundError: there is none.
            DeniedError: it is not yours to remove.
        """
        from hal.client.rest import secret_calls

        return await self.call(secret_calls.remove_secret(name, account=account, user=user))

    async def rotate_secret_key(self) -> KeyChange:
        """Create a new key, and store every secret under it; for admins."""
        from hal.client.rest import secret_calls

        return await self.call(secret_calls.rotate_key())

    async def shares(self) -> list[ShareInfo]:
        """Read the tree of shares: what accounts and users are entitled to, and what they have used."""
        return list(await self.call(calls.shares()))

    async def ledgers(self) -> list[LedgerInfo]:
        """Read how much of each limit is in use."""
        return list(await self.call(calls.ledgers()))

    async def priority(self, job: int) -> PriorityInfo:
        """Read the priority of a pending job, factor by factor.

        Raises:
            NotFoundError: no such job.
            ConflictError: it does not wait for resources.
        """
        return await self.call(calls.priority(job))

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────────

    async def health(self) -> HealthInfo:
        """Read the controller's health."""
        return await self.call(calls.health())

    async def metrics(self) -> str:
        """Read the controller's metrics, in Prometheus' text format."""
        return await self.call(calls.metrics())

    async def notifications(self) -> NotificationsInfo:
        """Read whether this HAL sends mail and posts to webhooks, and how many notifications were sent."""
        return await self.call(calls.notifications())

    async def version(self) -> dict[str, Any]:
        """Read the controller's version."""
        return await self.call(calls.version())

    def events(
        self, after: int | None = None, *, follow: bool = False, job: str | int | None = None
    ) -> AsyncIterator[EventInfo]:
        """Read the durable feed of events, in commit order.

        Args:
            after: begin behind this sequence number; None: from the first kept one, or with `follow` from now on.
            follow: do not end, but wait for more; resumes by itself after a restart of the controller.
            job: only events about this job.
        """
        job_id = "" if job is None else str(job)
        if not follow:
            return AsyncPlayer(self.connections).items(past_events(after or 0, job_id))
        feed = followed_events(
            after, job_id, address=self.address, reconnect_s=self.connections.reconnect_s, clock=time.monotonic
        )
        return AsyncPlayer(self.connections).items(feed)

    def attempts(
        self,
        after: str | None = None,
        *,
        newest: int | None = None,
        follow: bool = False,
        reader: str = "",
        on_lost: OnLost = ignore_lost,
        **filters: Any,
    ) -> AsyncIterator[EndedAttemptInfo]:
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
        return AsyncPlayer(self.connections).items(flow)

    async def call(self, call: Call[T]) -> T:
        """Send one call of REST /v1 and read its answer."""
        return call.read(await self.connections.send(call.request))

    async def drive(self, steps: Steps[T]) -> T:
        """Send the calls that it yields, one after the other; returns its result."""
        return await AsyncPlayer(self.connections).result(steps)

    def items_of(self, flow: Flow[T]) -> AsyncIterator[T]:
        """Perform the steps of a flow as far as its items are wanted; give each item."""
        return AsyncPlayer(self.connections).items(flow)

    def paged(self, call: Callable[[int, str], Call[Page[T]]], limit: int | None) -> AsyncIterator[T]:
        """Read the items of all pages of a listing; `call` gets a page's size and the cursor of the page before."""
        return AsyncPlayer(self.connections).items(paged(call, limit))


def _restored(address: Address, reconnect_s: float) -> AsyncClient:
    return AsyncClient(address, reconnect_s=reconnect_s)
