"""What changes by the second, sent to all open pages: how the cluster is, and the nodes in compact columns.

One loop for all sessions that are shown the same (`Session.rights`) asks the controller once a second, and less often
where its answers take long. Each page gets the whole once, then what has changed. A page that does not read is sent the
whole again when it does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from hal.client.transport.exchange import Request
from hal.core.model import DeniedError, HALError, InternalError, NotFoundError, OverloadedError
from hal.rest.problems import problem_of
from hal.runtime.interface import Runtime
from hal.web.node_columns import NodeColumns, NodeUse
from hal.web.sessions import Session

EVERY_MS: Final = 1_000
SHARE: Final = 20
"""The loop waits at least so many times as long as the controller took to answer."""
MOST_MS: Final = 15_000
NODES_UNSEEN_MS: Final = 5_000
"""How often nodes are asked for where no open page shows them: for the history of the cluster's use."""
LINGER_MS: Final = 10 * 60_000
"""How long a loop goes on, slowly, for nobody: whoever comes back finds the last minutes."""
UNSEEN_MS: Final = 10_000
"""Between two looks for nobody."""
MAX_LOOPS: Final = 200
MAX_PAGES: Final = 1_000
"""Open pages of all."""
MAX_WAITING: Final = 8
"""Events of one page."""
HISTORY: Final = 360
"""Points of the history of use,"""
POINT_MS: Final = 5_000
"""each so far from the next: half an hour."""
ALIVE_MS: Final = 15_000
TOPICS: Final = frozenset({"pulse", "nodes"})
_USE: Final = msgspec.json.Decoder(NodeUse)


class _Counts(Struct, frozen=True, kw_only=True):
    jobs: dict[str, int] = {}
    nodes: dict[str, int] = {}
    status: str = ""
    version: str = ""
    warnings: tuple[str, ...] = ()
    lost_after_ms: int = 0


class _Queues(Struct, frozen=True):
    queues: list[Any] = []


_COUNTS: Final = msgspec.json.Decoder(_Counts)
_QUEUES: Final = msgspec.json.Decoder(_Queues)


class _Page:
    """One open page."""

    def __init__(self, session: Session, topics: frozenset[str]) -> None:
        self.session = session
        self.topics = topics
        self.waiting: deque[bytes] = deque()
        self.fresh = True
        """It is sent the whole next."""
        self.wake = asyncio.Event()

    def put(self, sent: bytes) -> None:
        """Let it wait to be sent; if the page does not read, it is sent the whole later instead."""
        if len(self.waiting) >= MAX_WAITING:
            self.waiting.clear()
            self.fresh = True
        else:
            self.waiting.append(sent)


class _Loop:
    """Asks for all pages of equal rights."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.pages: set[_Page] = set()
        self.nodes = NodeColumns()
        self._etag = ""
        self._nodes_ms = -NODES_UNSEEN_MS
        self._pulse = b""
        self._history: deque[tuple[int, ...]] = deque(maxlen=HISTORY)
        self._point_ms = -POINT_MS
        self.task: asyncio.Task[None] | None = None
        self.unseen_ms = 0
        self.last: Session | None = None
        """Whose token is shown while nobody looks."""
        self._look_now = asyncio.Event()
        self.over = False
        """It looks no more: pages come again."""

    def enter(self, page: _Page) -> None:
        self.pages.add(page)
        self.last = page.session
        self._look_now.set()

    async def run(self) -> None:
        """Until nobody has looked for a long time, or nobody's token opens anything any more."""
        try:
            await self._look_again_and_again()
        finally:
            self.over = True
            for page in self.pages:
                page.wake.set()

    async def _look_again_and_again(self) -> None:
        while True:
            session = next((page.session for page in self.pages if not page.session.ended), self.last)
            if session is None or session.ended:
                return
            if self.pages:
                self.unseen_ms = self._runtime.monotonic_ms()
            elif self._runtime.monotonic_ms() - self.unseen_ms >= LINGER_MS:
                return
            begun_ms = self._runtime.monotonic_ms()
            try:
                await self._look(session)
            except (HALError, msgspec.DecodeError) as error:
                if isinstance(error, DeniedError) and not self.pages:
                    return  # the token of the last one opens nothing any more
                failed = error if isinstance(error, HALError) else InternalError(f"the controller's answer: {error}")
                self._send(b"trouble", msgspec.json.encode(problem_of(failed)))
            took_ms = self._runtime.monotonic_ms() - begun_ms
            wait_ms = max(EVERY_MS - took_ms, min(SHARE * took_ms, MOST_MS)) if self.pages else UNSEEN_MS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    await self._look_now.wait()
            self._look_now.clear()

    async def _look(self, session: Session) -> None:
        ask = session.controller.send
        health = _COUNTS.decode((await ask(Request("GET", "/v1/health"))).body)
        queues = _QUEUES.decode((await ask(Request("GET", "/v1/queues"))).body)
        now_ms = self._runtime.monotonic_ms()
        seen = any("nodes" in page.topics for page in self.pages)
        delta: bytes | None = None
        if seen or now_ms - self._nodes_ms >= NODES_UNSEEN_MS:
            delta = await self._look_at_nodes(session)
            self._nodes_ms = now_ms
        point: tuple[int, ...] | None = None
        if now_ms - self._point_ms >= POINT_MS:
            point = (self._runtime.now_ms(), *self.nodes.used_permille(), *_work(health))
            self._history.append(point)
            self._point_ms = now_ms
        pulse = {
            "at": self._runtime.now_ms(),
            "health": health,
            "queues": queues.queues,
            "totals": self.nodes.totals(),
        }
        self._pulse = msgspec.json.encode(pulse)
        sent = _event(b"pulse", self._pulse)
        if point is not None:
            sent += _event(b"point", msgspec.json.encode(point))
        changed = _event(b"node-changes", delta) if delta is not None and delta != b"" else b""
        for page in self.pages:
            if page.fresh:
                page.waiting.append(self._whole(page.topics))
                page.fresh = False
            else:
                page.put(sent + (changed if "nodes" in page.topics else b""))
            page.wake.set()

    async def _look_at_nodes(self, session: Session) -> bytes | None:
        """What has changed, as JSON; b'' where the pages are to be sent the whole; None for nothing."""
        headers = {"If-None-Match": f'"{self._etag}"'} if self._etag else {}
        answer = await session.controller.send(Request("GET", "/v1/node-use", headers=headers))
        if answer.status == 304:
            return None
        use = _USE.decode(answer.body)
        delta = self.nodes.update(use)
        self._etag = use.version
        if delta is None:
            for page in self.pages:
                page.fresh = page.fresh or "nodes" in page.topics
            return b""
        return msgspec.json.encode(delta) if delta["i"] else None

    def _whole(self, topics: frozenset[str]) -> bytes:
        sent = _event(b"pulse", self._pulse) + _event(b"history", msgspec.json.encode(list(self._history)))
        if "nodes" in topics:
            sent += _event(b"nodes", msgspec.json.encode(self.nodes.whole()))
        return sent

    def _send(self, kind: bytes, data: bytes) -> None:
        for page in self.pages:
            page.put(_event(kind, data))
            page.wake.set()


class Live:
    """All loops."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loops: dict[str, _Loop] = {}

    async def follow(self, session: Session, topics: frozenset[str]) -> AsyncIterator[bytes]:
        """Server-sent events until the page is closed.

        Raises:
            NotFoundError: there is no such topic.
            OverloadedError: too many pages are open.
        """
        if unknown := topics - TOPICS:
            raise NotFoundError(f"there is no topic '{min(unknown)[:40]}'", hint=f"known: {', '.join(sorted(TOPICS))}")
        if sum(len(loop.pages) for loop in self._loops.values()) >= MAX_PAGES:
            raise OverloadedError(f"{MAX_PAGES} pages are open", hint="close some")
        loop = self._loop(session)
        page = _Page(session, topics)
        return self._followed(loop, page)

    async def _followed(self, loop: _Loop, page: _Page) -> AsyncIterator[bytes]:
        loop.enter(page)
        try:
            yield b": begins\n\n"
            while not (page.session.ended or loop.over):
                with suppress(TimeoutError):
                    async with asyncio.timeout(ALIVE_MS / 1_000):
                        await page.wake.wait()
                page.wake.clear()
                if page.waiting:
                    sent = b"".join(page.waiting)
                    page.waiting.clear()
                    yield sent
                else:
                    yield b": alive\n\n"
        finally:
            loop.pages.discard(page)

    def _loop(self, session: Session) -> _Loop:
        """
        Raises:
            OverloadedError: people of too many kinds look.
        """
        loop = self._loops.get(session.rights)
        if loop is None or loop.task is None or loop.task.done():
            self._loops = {key: one for key, one in self._loops.items() if one.task is not None and not one.task.done()}
            if len(self._loops) >= MAX_LOOPS:
                raise OverloadedError(f"{MAX_LOOPS} people look at this page", hint="try again later")
            loop = self._loops[session.rights] = _Loop(self._runtime)
            loop.last = session
            loop.unseen_ms = self._runtime.monotonic_ms()
            loop.task = self._runtime.spawn_task(loop.run(), "live")
        return loop


def _work(health: _Counts) -> tuple[int, int]:
    """Jobs that run, and that wait."""
    jobs = health.jobs
    return jobs.get("running", 0), jobs.get("pending", 0)


def _event(kind: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind, data)
