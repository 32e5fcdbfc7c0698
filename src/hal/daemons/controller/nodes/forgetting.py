"""What nodes must still delete: sent to each that is there, a piece at a time, until it says that it is done.

What must be deleted is rows of the store (`forgets`), so it survives a restart of either side; a node that is away is
sent it when it is back. A node has one `Forget` under way. Rows go when the node has answered; a frame that is sent
twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from hal.core.model import HALError, TimedOutError, UnreachableError
from hal.daemons.controller.cycle.committer import Committer
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.inbox import Inbox
from hal.daemons.controller.nodes.request_numbers import RequestNumbers
from hal.planes.tasks import TaskPlane
from hal.runtime.interface import Runtime, Timer
from hal.store import DropForgets, ForgetRow
from hal.wire.frames.agent_keeper import Forget, ForgetPiece, Forgotten

MAX_FORGETS_A_NODE: Final = 100_000
"""Rows kept for one node that is away or slow; beyond that its own bound on outputs must do ([node] outputs_days)."""
PIECES_A_FRAME: Final = 500
ANSWER_MS: Final = 600_000
"""How long a node may take to delete what one frame names: an array may have left a million files."""
BEGUN_AT_ONCE: Final = 20
"""Nodes with which it begins before others have their turn: a gang may leave something to delete on ten thousand."""
BEGUN_PAUSE_MS: Final = 2
RETRY_MS: Final = 30_000
"""After what did not work, until it is tried again."""


class Forgetting:
    """Of all nodes."""

    def __init__(
        self,
        runtime: Runtime,
        plane: TaskPlane,
        committer: Committer,
        flusher: Flusher,
        inbox: Callable[[], Inbox],
        numbers: RequestNumbers,
        send: Callable[[str, Forget], bool],
    ) -> None:
        """
        Args:
            send: to that node; False: it is not there.
        """
        self._runtime = runtime
        self._plane = plane
        self._committer = committer
        self._flusher = flusher
        self._inbox = inbox
        self._numbers = numbers
        self._send = send
        self._kept: dict[str, int] = {}
        """Rows by node, about: what was staged and not committed may be counted."""
        self._more: set[str] = set()
        """Nodes under way for which there may be more since their rows were read."""
        self._ready: dict[str, None] = {}
        """Nodes with which it will begin, in that order."""
        self._timer: Timer | None = None
        """Until it begins with more of them."""
        self._there: set[str] = set()
        """Nodes that can be sent a `Forget` now."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[str, tuple[int, asyncio.Future[None]]] = {}
        """By node: the request that is not answered yet."""

    async def load(self) -> None:
        """Read what is left from before."""
        self._kept = await self._committer.read(lambda store: store.forget_counts())

    def bounded(self, rows: Iterable[ForgetRow]) -> list[ForgetRow]:
        """Those that are kept: of nodes that exist, and within the bound; to be staged now."""
        kept: list[ForgetRow] = []
        for row in rows:
            count = self._kept.get(row.node, 0)
            if row.node in self._plane.nodes and count < MAX_FORGETS_A_NODE:
                self._kept[row.node] = count + 1
                kept.append(row)
        return kept

    def attach(self, node: str) -> None:
        """The node is there and knows `Forget`."""
        self.detach(node)
        self._there.add(node)
        if self._kept.get(node):
            self.wake([node])

    def detach(self, node: str) -> None:
        """The node is away."""
        self._there.discard(node)
        self._ready.pop(node, None)
        self._answers.pop(node, None)
        task = self._under_way.pop(node, None)
        if task is not None:
            task.cancel()

    def remove(self, node: str) -> None:
        """The node was removed, and its rows with it."""
        self.detach(node)
        self._kept.pop(node, None)

    def wake(self, nodes: Iterable[str]) -> None:
        """Rows of these nodes were committed."""
        for node in nodes:
            if node not in self._plane.nodes:
                continue
            # When they were staged they were counted; a look at what was committed may have found nothing since.
            self._kept[node] = max(self._kept.get(node, 0), 1)
            if node in self._under_way:
                self._more.add(node)
            elif node in self._there:
                self._ready[node] = None
        if self._timer is None:
            self._begin_some()

    def _begin_some(self) -> None:
        for node in list(islice(self._ready, BEGUN_AT_ONCE)):
            del self._ready[node]
            self._under_way[node] = self._runtime.spawn_task(self._work(node), "forget")
        self._timer = self._runtime.call_later(BEGUN_PAUSE_MS, self._begin_some) if self._ready else None

    def answered(self, node: str, frame: Forgotten) -> None:
        """The node is done with a request; the answer to an older one says nothing."""
        request, answer = self._answers.get(node, (0, None))
        if answer is not None and request == frame.request and not answer.done():
            answer.set_result(None)

    def close(self) -> None:
        """Send nothing more."""
        for node in list(self._there):
            self.detach(node)
        if self._timer is not None:
            self._timer.cancel()

    async def _work(self, node: str) -> None:
        """Until nothing is left, or the node is away (`detach`)."""
        try:
            while True:
                try:
                    if not await self._delete_some(node):
                        return
                except HALError as error:
                    self._runtime.log.warning("a node has not deleted what it must", node=node, reason=str(error))
                    await self._runtime.sleep(RETRY_MS)
        finally:
            if self._under_way.get(node) is asyncio.current_task():
                del self._under_way[node]

    async def _delete_some(self, node: str) -> bool:
        """Have one frame's pieces deleted; False: there are none.

        Raises:
            HALError: it did not work now.
        """
        self._more.discard(node)
        rows = await self._committer.read(lambda store: store.forgets(node, limit=PIECES_A_FRAME))
        if not rows:
            if node not in self._more:
                self._kept.pop(node, None)
            return node in self._more
        # A power failure must not bring back a job whose files are gone.
        await self._flusher.caught_up()
        await self._ask(node, rows)
        await self._inbox().call(partial(self._drop, node, rows))
        return True

    async def _ask(self, node: str, rows: list[ForgetRow]) -> None:
        """Have the node delete these; returns when it has.

        Raises:
            UnreachableError: it is away.
            TimedOutError: it did not answer.
        """
        request = self._numbers.next()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers[node] = (request, answer)
        pieces = tuple(ForgetPiece(row.job, row.attempt, row.first, row.count) for row in rows)
        try:
            if not self._send(node, Forget(request=request, pieces=pieces)):
                raise UnreachableError(f"node '{node}' is not connected")
            async with asyncio.timeout(ANSWER_MS / 1000):
                await answer
        except TimeoutError:
            raise TimedOutError(f"node '{node}' did not delete {len(pieces)} pieces in time") from None
        finally:
            if self._answers.get(node) == (request, answer):
                del self._answers[node]

    def _drop(self, node: str, rows: list[ForgetRow], now_ms: int) -> None:
        self._plane.add_operations(DropForgets(rows))
        self._kept[node] = max(self._kept.get(node, 0) - len(rows), 0)
