"""The asyncio client, with the names and rules of the sync one.

The transport is httpx; requests and answers are built and read by the same code as in the sync client.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import httpx

from hal.client import calls
from hal.client.address import DIAL_TIMEOUT_S, Address, find_address
from hal.client.aio_job import AsyncJob
from hal.client.answering import check_tcp, check_unix, refuse_plain
from hal.client.backoff import Backoff, Turn
from hal.client.calls import Call, Page
from hal.client.errors import error_from_answer
from hal.client.http import (
    ANSWER_TIMEOUT_S,
    LOST,
    MAX_ANSWER_BYTES,
    MAX_CONNECTIONS,
    MAX_STREAMS,
    RECONNECT_S,
    STREAM_TIMEOUT_S,
    TOO_MANY,
    Answer,
    BrokenStreamError,
    Request,
    again,
    refuse_closed,
    too_long,
)
from hal.client.outcome import ids_of
from hal.client.pacing import LEAST_BYTES_PER_S, TOO_SLOW, Pace
from hal.client.places import Place, Rotation, Search
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
from hal.core.model import UnreachableError

if TYPE_CHECKING:
    from hal.client.policy_views import LicenceInfo, PolicyChange, PolicyInfo
    from hal.core.model.policy_change import Operation

T = TypeVar("T")


LIMITS = httpx.Limits(max_connections=MAX_CONNECTIONS + MAX_STREAMS, max_keepalive_connections=MAX_CONNECTIONS)


async def _check_connected(address: Address, place: Place | None, event: str, about: Mapping[str, Any]) -> None:
    """Look who serves a new connection without TLS, before anything is sent on it; httpx calls this.

    Raises:
        DeniedError: somebody who is not meant.
    """
    if not event.startswith("connection.connect_") or not event.endswith(".complete"):
        return
    connection = about["return_value"].get_extra_info("socket")
    try:
        if place is None:
            check_unix(address, connection)
        else:
            check_tcp(address, place, connection)
    except BaseException:
        await about["return_value"].aclose()
        raise


def _client(transport: httpx.AsyncHTTPTransport, place: Place | None = None) -> httpx.AsyncClient:
    base = place.url if place is not None else "http://localhost"
    return httpx.AsyncClient(transport=transport, base_url=base, trust_env=False)


class AsyncClient:
    """A connection to one HAL for asyncio. Use `await hal.aconnect()`, and `async with` or `aclose()`."""

    def __init__(self, address: Address | None = None, *, reconnect_s: float = RECONNECT_S) -> None:
        """As `Client`."""
        self.address = address or find_address()
        self._reconnect_s = reconnect_s
        self._answered = False
        self._http: dict[str, httpx.AsyncClient] = {}
        """By socket, or URL of the controller."""
        self._rotation = Rotation(self.address.places)
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections; nothing can be asked after that."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        clients, self._http = list(self._http.values()), {}
        for client in clients:
            await client.aclose()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def submit(
        self,
        what: str | Sequence[str] | SpecLike | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJob: ...

    @overload
    async def submit(self, what: Sequence[SpecLike], *, idempotency_key: str | None = None) -> list[AsyncJob]: ...

    async def submit(
        self,
        what: str | Sequence[str] | SpecLike | Sequence[SpecLike] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJob | list[AsyncJob]:
        """As `Client.submit`."""
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        answer = await self.call(calls.submit(submission.specs, key=idempotency_key))
        jobs = [AsyncJob(self, job) for job in ids_of(answer)]
        return jobs if submission.many else jobs[0]

    async def check(
        self, what: str | Sequence[str] | SpecLike | Sequence[SpecLike], **options: Unpack[JobOptions]
    ) -> None:
        """As `Client.check`."""
        submission = sort_out(what, options, environ=os.environ, workdir=os.getcwd())
        await self.call(calls.submit(submission.specs, dry_run=True))

    async def job(self, job_id: str | int) -> AsyncJob:
        """The job with that id.

        Raises:
            NotFoundError: there is none.
        """
        job = AsyncJob(self, str(job_id))
        await job.refresh()
        return job

    def jobs(self, *, limit: int | None = None, **filters: Any) -> AsyncIterator[JobInfo]:
        """As `Client.jobs`."""
        return self.paged(lambda size, cursor: calls.jobs(calls.filters_of(filters), limit=size, cursor=cursor), limit)

    async def wait_all(self, jobs: Iterable[AsyncJob | str | int], timeout: float | None = None) -> list[JobInfo]:
        """As `Client.wait_all`."""
        handles = [job if isinstance(job, AsyncJob) else AsyncJob(self, str(job)) for job in jobs]
        deadline_s = None if timeout is None else asyncio.get_running_loop().time() + timeout
        ends = []
        for handle in handles:
            left_s = None if deadline_s is None else max(0.0, deadline_s - asyncio.get_running_loop().time())
            ends.append(await handle.wait(left_s))
        return ends

    async def cancel(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """As `Client.cancel`."""
        return await self.drive(controlled("cancel", ids, filters))

    async def hold(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """As `Client.hold`."""
        return await self.drive(controlled("hold", ids, filters))

    async def release(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """As `Client.release`."""
        return await self.drive(controlled("release", ids, filters))

    async def requeue(self, *ids: str | int, **filters: Any) -> list[Outcome]:
        """As `Client.requeue`."""
        return await self.drive(controlled("requeue", ids, filters))

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> list[NodeInfo]:
        """All nodes, by name."""
        return list(await self.call(calls.nodes()))

    async def node(self, name: str) -> NodeInfo:
        """One node."""
        return await self.call(calls.node(name))

    async def fence(self, name: str) -> NodeInfo:
        """Declare a node gone for good: its attempts are lost and their tasks run again. Nothing may run there still.

        Raises:
            ConflictError: it is up.
        """
        return await self.call(calls.fence(name))

    async def cordon(self, *names: str, reason: str = "") -> list[Outcome]:
        """Nothing new starts on these nodes until they are uncordoned; what runs goes on. One outcome each."""
        return list(await self.call(calls.control_nodes("cordon", names, reason)))

    async def uncordon(self, *names: str) -> list[Outcome]:
        """Work may start again on these nodes, unless something else than a person keeps it away (`detail` says so)."""
        return list(await self.call(calls.control_nodes("uncordon", names)))

    async def drain(self, *names: str, reason: str = "") -> list[Outcome]:
        """Nothing new starts on these nodes, and they are to become empty; `wait_drained` waits for that."""
        return list(await self.call(calls.control_nodes("drain", names, reason)))

    async def wait_drained(
        self, name: str, timeout: float | None = None, *, seen: Callable[[NodeInfo], None] = lambda node: None
    ) -> NodeInfo:
        """The node when it holds nothing any more, or is not drained any more; `seen` gets it each second until then.

        Raises:
            TimedOutError: it still holds something after `timeout` seconds.
            NotFoundError: there is no such node (any more).
        """
        return await self.drive(emptied(name, timeout, clock=time.monotonic, seen=seen, round_s=DRAIN_ROUND_S))

    async def remove_nodes(self, *names: str) -> list[Outcome]:
        """Forget nodes that are gone, or cordoned, and hold nothing. One that dials again is a new node."""
        return list(await self.call(calls.control_nodes("remove", names)))

    async def queues(self) -> list[QueueInfo]:
        """All queues."""
        return list(await self.call(calls.queues()))

    async def policy(self, version: int | None = None) -> PolicyInfo:
        """As `Client.policy`."""
        from hal.client import policy_calls

        return await self.call(policy_calls.policy(version))

    async def change_policy(
        self, *operations: Operation, version: int | None = None, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """As `Client.change_policy`."""
        from hal.client import policy_calls

        return await self.call(policy_calls.change_policy(operations, version=version, dry_run=dry_run, note=note))

    async def put_policy(
        self, policy: Mapping[str, Any], *, version: int, dry_run: bool = False, note: str = ""
    ) -> PolicyChange:
        """As `Client.put_policy`."""
        from hal.client import policy_calls

        return await self.call(policy_calls.put_policy(policy, version=version, dry_run=dry_run, note=note))

    async def licences(self) -> list[LicenceInfo]:
        """As `Client.licences`."""
        from hal.client import policy_calls

        return list(await self.call(policy_calls.licences()))

    async def shares(self) -> list[ShareInfo]:
        """The tree of shares: what is meant for whom, what they have had."""
        return list(await self.call(calls.shares()))

    async def ledgers(self) -> list[LedgerInfo]:
        """How much of each limit is in use."""
        return list(await self.call(calls.ledgers()))

    async def priority(self, job: int) -> PriorityInfo:
        """See `Client.priority`."""
        return await self.call(calls.priority(job))

    async def health(self) -> HealthInfo:
        """How the controller is."""
        return await self.call(calls.health())

    async def version(self) -> dict[str, Any]:
        """What the controller says about its version."""
        return await self.call(calls.version())

    def events(
        self, after: int | None = None, *, follow: bool = False, job: str | int | None = None
    ) -> AsyncIterator[EventInfo]:
        """As `Client.events`."""
        job_id = "" if job is None else str(job)
        return self._followed_events(after, job_id) if follow else self._past_events(after or 0, job_id)

    async def call(self, call: Call[T]) -> T:
        """Send one call of REST /v1 and read its answer."""
        return call.read(await self._send(call.request))

    # ── transport ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, request: Request) -> Answer:
        turn, loop = Turn(), asyncio.get_running_loop()
        search = Search(self._rotation, answered=self._answered, reconnect_s=self._reconnect_s)
        while True:
            place = self._rotation.current
            try:
                client, more = await self._connected(place)
                sent_s = ANSWER_TIMEOUT_S + request.wait_s + len(request.body or b"") / LEAST_BYTES_PER_S
                response = await _in_time(client.send(self._built(client, request, place, more), stream=True), sent_s)
                body = await _whole(response)
                if response.status_code == TOO_MANY:
                    delay_s = turn.refused(response.headers.get("retry-after"))
                elif not again(request, response.status_code, body):
                    break
                else:
                    delay_s = search.failed(place, LOST, loop.time(), reached=True)
                if delay_s is None:
                    break
            except (httpx.ConnectError, httpx.ConnectTimeout, UnreachableError) as error:
                unreachable = self._unreachable(place, error)
                delay_s = search.failed(place, unreachable, loop.time())
                if delay_s is None:
                    raise search.error(unreachable) from error
            except httpx.TransportError as error:
                unreachable = self._unreachable(place, error)
                repeatable = request.repeatable
                delay_s = search.failed(place, unreachable, loop.time(), reached=True) if repeatable else None
                if delay_s is None:
                    raise unreachable from error
            await asyncio.sleep(delay_s)
        self._answered = True
        self._rotation.answered(place)
        if response.status_code >= 400:
            raise error_from_answer(response.status_code, body)
        return Answer(response.status_code, dict(response.headers), body)

    async def stream(self, request: Request) -> AsyncIterator[tuple[Mapping[str, str], bytes]]:
        """Headers and bytes of an answer as it comes; the first pair has no bytes.

        Raises:
            BrokenStreamError: it broke off; open it again where it stopped.
        """
        response: httpx.Response | None = None
        place = self._rotation.current
        try:
            client, more = await self._connected(place)
            built = self._built(client, request, place, more, STREAM_TIMEOUT_S)
            response = await _in_time(client.send(built, stream=True), STREAM_TIMEOUT_S)
            if response.status_code >= 400:
                body = await _whole(response)
                if again(request, response.status_code, body):
                    self._rotation.failed(place)
                    raise BrokenStreamError("nobody leads at the moment")
                raise error_from_answer(response.status_code, body)
            headers = dict(response.headers)
            yield headers, b""
            async for piece in response.aiter_raw():
                yield headers, piece
        except (httpx.TransportError, UnreachableError) as error:
            self._rotation.failed(place)
            raise BrokenStreamError(f"the stream broke off: {error}") from error
        finally:
            if response is not None:
                await response.aclose()

    async def _connected(self, place: Place | None) -> tuple[httpx.AsyncClient, dict[str, Any]]:
        """What sends to that controller, and what httpx is to be told with each request."""
        refuse_closed(self._closed)
        if place is None:
            path = self.address.path()
            if path not in self._http:
                await self._drop()  # a restart has chosen another one
                self._http[path] = _client(httpx.AsyncHTTPTransport(uds=path, limits=LIMITS, trust_env=False))
            return self._http[path], {"trace": partial(_check_connected, self.address, None)}
        if not place.tls:
            refuse_plain(self.address, place)
            if place.url not in self._http:
                self._http[place.url] = _client(httpx.AsyncHTTPTransport(limits=LIMITS, trust_env=False), place)
            return self._http[place.url], {"trace": partial(_check_connected, self.address, place)}
        from hal.client.trust import context_for, server_name

        authority = await asyncio.to_thread(self.address.believed, place)
        refuse_closed(self._closed)
        if place.url not in self._http:
            secured = httpx.AsyncHTTPTransport(verify=context_for(authority), limits=LIMITS, trust_env=False)
            self._http[place.url] = _client(secured, place)
        return self._http[place.url], {"sni_hostname": server_name(place, authority)}

    def _built(
        self,
        client: httpx.AsyncClient,
        request: Request,
        place: Place | None,
        more: dict[str, Any],
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> httpx.Request:
        several = len(self.address.places) > 1
        patience_s = timeout_s + request.wait_s
        return client.build_request(
            request.method,
            request.target,
            content=request.body,
            headers=request.all_headers(self.address, place),
            timeout=httpx.Timeout(patience_s, connect=DIAL_TIMEOUT_S if several else patience_s),
            extensions=more,
        )

    def _unreachable(self, place: Place | None, error: Exception) -> UnreachableError:
        """
        Raises:
            DeniedError: whoever answers is not believed.
        """
        if isinstance(error, UnreachableError):
            return error
        cause: BaseException | None = error
        while cause is not None and place is not None and place.tls:
            if isinstance(cause, ssl.SSLError):
                from hal.client.trust import tls_error

                told = tls_error(place, cause, self.address.authority or self.address.fingerprint)
                if not isinstance(told, UnreachableError):
                    raise told from error
                return told
            cause = cause.__cause__ or cause.__context__
        return self.address.unreachable(str(error) or repr(error), place)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def drive(self, steps: Steps[T]) -> T:
        """As `Client.drive`."""
        answer: Any = None
        while True:
            try:
                call = steps.send(answer)
            except StopIteration as finished:
                result: T = finished.value
                return result
            answer = await self.call(call)

    async def paged(self, call: Callable[[int, str], Call[Page[T]]], limit: int | None) -> AsyncIterator[T]:
        """As `Client.paged`."""
        cursor, left = "", limit
        while left is None or left > 0:
            page = await self.call(call(calls.PAGE_ITEMS if left is None else min(left, calls.PAGE_ITEMS), cursor))
            for item in page.items if left is None else page.items[:left]:
                yield item
            left = None if left is None else left - len(page.items)
            cursor = page.next(cursor)
            if not cursor:
                return

    async def _past_events(self, after: int, job_id: str) -> AsyncIterator[EventInfo]:
        while page := (await self.call(calls.events(after, job_id=job_id))).items:
            for event in page:
                yield event
            after = calls.last_sequence(page, after)

    async def _followed_events(self, after: int | None, job_id: str) -> AsyncIterator[EventInfo]:
        backoff = Backoff(self._reconnect_s)
        while True:
            reader = EventReader()
            try:
                async for _, chunk in self.stream(calls.event_stream(after, job_id=job_id)):
                    backoff.worked()
                    for event in reader.feed(chunk):
                        info = calls.read_event(event)
                        if info is not None:
                            after = calls.last_sequence([info], -1 if after is None else after)
                            yield info
            except BrokenStreamError:
                pass
            delay_s = backoff.failed(asyncio.get_running_loop().time())
            if delay_s is None:
                raise self.address.unreachable("its event feed ends again and again")
            await asyncio.sleep(delay_s)


async def _in_time(sending: Awaitable[httpx.Response], patience_s: float) -> httpx.Response:
    """
    Raises:
        httpx.ReadTimeout: its head has not come, however little was missing.
    """
    try:
        async with asyncio.timeout(patience_s):
            return await sending
    except TimeoutError:
        raise httpx.ReadTimeout(TOO_SLOW) from None


async def _whole(response: httpx.Response) -> bytes:
    """The body, which is closed behind it; compressed it is not, for that was not asked for.

    Raises:
        InternalError: it is longer than `MAX_ANSWER_BYTES`; no more of it was kept.
        httpx.ReadTimeout: it comes too slowly.
    """
    parts, size = [], 0
    clock = asyncio.get_running_loop().time
    pace = Pace(clock(), ANSWER_TIMEOUT_S)
    pace.head_is_read(clock())
    try:
        async for piece in response.aiter_raw():
            size += len(piece)
            pace.came(len(piece))
            if size > MAX_ANSWER_BYTES:
                raise too_long()
            if pace.left_s(clock()) <= 0:
                raise httpx.ReadTimeout(TOO_SLOW)
            parts.append(piece)
    finally:
        await response.aclose()
    return b"".join(parts)
