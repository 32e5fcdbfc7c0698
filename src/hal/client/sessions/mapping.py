"""`map`: many tasks of one function, each tracked by its result, none by a future.

Tasks are sent by the block, and no more ahead of the results that were taken than a window: neither the items nor the
results are ever all in memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from hal.client.sessions.answers import Stored, remove_results, values_of
from hal.client.sessions.core import Options, SessionCore
from hal.runtime.exchange import MARK, size_of
from hal.runtime.shared_values import take_used
from hal.runtime.task_context import waiting
from hal.runtime.task_payloads import encode_value
from hal.wire.frames.sessions import TaskResults, TaskStatus

if TYPE_CHECKING:
    from hal.client.sessions.progress import ProgressDisplay
    from hal.runtime.session_file import SessionFile

BLOCK_TASKS: Final = 1_024
BLOCK_BYTES: Final = 256 << 10
BLOCK_S: Final = 0.002
"""A block leaves when so much time has passed since its first item came."""
WINDOW_TASKS: Final = 65_536
"""Tasks of one map whose results were not taken."""
WINDOW_BYTES: Final = 64 << 20
OFFSET_BITS: Final = 64


def title_of(progress: bool | str) -> str | None:
    """What begins the line of progress that a caller asks for; None: no line."""
    return None if progress is False else "" if progress is True else progress


class TaskMap:
    """One call of `map`."""

    def __init__(
        self,
        core: SessionCore,
        function: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        options: Options,
        timeout_s: float | None,
        title: str | None = None,
        session: SessionFile | None = None,
    ) -> None:
        """Args:
        title: of the line that shows how far it is; None: nothing is shown.
        session: whose slots are shown; None: that of `core`.
        """
        self._core = core
        self._session = session or core.session
        self._function = function
        """What it uses is kept as long as somebody has it."""
        self._stored = core.hold(function)
        self._items = zip(*iterables, strict=False)
        self._options = options
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._arrived = threading.Condition()
        self._frames: dict[int, TaskResults] = {}
        """Results that were not taken, by the id of their first task."""
        self._awaited = -1
        """Whose result somebody waits for, by the id of the task: others wake nobody."""
        self._blocks: deque[tuple[int, _MapBlock]] = deque()
        """First task of each block of which results were not taken, in order."""
        self._block_tasks = BLOCK_TASKS
        self._taking: tuple[TaskResults, SessionCore] | None = None
        """Results of which some were not taken."""
        self._untaken = 0
        self._untaken_bytes = 0
        self._exhausted = False
        self._failure: BaseException | None = None
        """What ended the items, or the connection, before their end."""
        self._abandoned = False
        self._done = self._failed = 0
        """Tasks that were answered; of these, those without a result."""
        self._display = None if title is None else self._new_display(title, iterables)

    def _new_display(self, title: str, iterables: tuple[Iterable[Any], ...]) -> ProgressDisplay:
        from hal.client.sessions.progress import Progress, ProgressDisplay, length_of

        total = length_of(iterables)
        return ProgressDisplay(self._session, title, lambda: Progress(self._done, self._failed, total))

    def fill(self) -> None:
        """Send items until the window is full or there are no more.

        Raises:
            SessionLost: the connection is gone.
            RuntimeError: the session was shut down.
        """
        while not self._exhausted and self._untaken < WINDOW_TASKS and self._untaken_bytes < WINDOW_BYTES:
            core, stored = self._next_core()
            if not core.has_room(BLOCK_TASKS):
                return
            parts = self._next_parts(core)
            if parts:
                block = _MapBlock(self, core, parts, stored)
                first = core.submit_block(stored, parts, take_used(), self._options, block)
                self._blocks.append((first, block))
                self._untaken += block.tasks
                self._untaken_bytes += block.size

    def _next_core(self) -> tuple[SessionCore, Stored]:
        """Where the next block is sent, and the function there."""
        return self._core, self._stored

    def results(self) -> Iterator[Any]:
        """Yield the results, in the order of the items.

        Raises:
            TimeoutError: a result was not there in time.
            SessionLost: the connection is gone.
        """
        for part in self.parts():
            yield from part

    def parts(self) -> Iterator[Iterator[Any]]:
        """Yield iterators over the results that have arrived together; only to get one of them is waited for anything.

        Raises: as `results`.
        """
        try:
            if self._display is not None:
                self._display.begin()
            while True:
                if self._untaken < WINDOW_TASKS // 2:
                    self.fill()
                if not self._blocks:
                    if self._exhausted:
                        break
                    self._next_core()[0].wait_for_room(BLOCK_TASKS)
                    continue
                first, block = self._blocks[0]
                taken, count = 0, block.tasks
                while taken < count:
                    frame = self._take(block.offset + first + taken, block)
                    self._taking = frame, block.core
                    yield values_of(frame, block.core.exchange)
                    self._taking = None
                    taken += len(frame.statuses)
                self._blocks.popleft()
                self._untaken -= count
                self._untaken_bytes -= block.size
            if self._failure is not None:
                raise self._failure
        finally:
            self._abandon()
            if self._display is not None:
                self._display.close()

    def _next_parts(self, core: SessionCore) -> list[bytes]:
        """Encode the items of the next block."""
        parts: list[bytes] = []
        size, since = 0, 0.0
        clock, exchange, client, most = time.perf_counter, core.exchange, core.number, self._block_tasks
        try:
            for item in self._items:
                data = encode_value(item, exchange, client)
                parts.append(data)
                size += len(data)
                if data[0] == MARK:
                    return parts
                if len(parts) == 1:
                    since = clock()
                elif len(parts) >= most or clock() - since > BLOCK_S:
                    return parts
                if size >= BLOCK_BYTES:
                    return parts
        except Exception as error:  # of the iterables or of pickling: it has its place in the order of results
            self._failure = error
        self._exhausted = True
        return parts

    def receive(self, frame: TaskResults, block: _MapBlock) -> None:
        """Keep results until they are taken.

        Args:
            block: whose they are.
        """
        if self._abandoned:
            remove_results(frame, block.core.exchange)
            return
        count = len(frame.statuses)
        self._done += count
        self._failed += count - frame.statuses.count(TaskStatus.DONE)
        task = block.offset + frame.block + frame.index
        with self._arrived:
            if not self._abandoned:
                self._frames[task] = frame
                if task == self._awaited:
                    self._arrived.notify()
                return
        remove_results(frame, block.core.exchange)

    def lose(self, block: _MapBlock, error: BaseException) -> None:
        """There will be no more results of a block."""
        with self._arrived:
            block.lost = error
            self._arrived.notify()

    def _take(self, task: int, block: _MapBlock) -> TaskResults:
        frame = self._frames.pop(task, None)
        if frame is not None:
            return frame
        with waiting(), self._arrived:
            self._awaited = task
            while (frame := self._frames.pop(task, None)) is None:
                if block.lost is not None:
                    raise block.lost
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._arrived.wait(left)
        return frame

    def _abandon(self) -> None:
        with self._arrived:
            self._abandoned = True
            frames, self._frames = self._frames, {}
        self._let_go()
        if self._taking is not None:
            remove_results(self._taking[0], self._taking[1].exchange)
        by_core: dict[SessionCore, list[tuple[int, int]]] = {}
        for first, block in self._blocks:
            by_core.setdefault(block.core, []).append((first, block.tasks))
            for task in range(block.offset + first, block.offset + first + block.tasks) if frames else ():
                if (frame := frames.pop(task, None)) is not None:
                    remove_results(frame, block.core.exchange)
        for core, ranges in by_core.items():
            core.cancel(ranges, wait=False)

    def _let_go(self) -> None:
        """The function is not needed any more."""
        self._core.let_go(self._stored)


class _MapBlock:
    """Tasks of one frame of a map.

    Attributes:
        core: where it was sent.
        offset: added to its ids, which are only unique there.
        lost: why there will be no more results.
    """

    __slots__ = ("_map", "core", "files", "left", "lost", "offset", "size", "stored", "tasks")

    def __init__(self, of: TaskMap, core: SessionCore, parts: list[bytes], stored: Stored) -> None:
        self._map = of
        self.core = core
        self.offset = core.shard << OFFSET_BITS
        self.lost: BaseException | None = None
        self.left = self.tasks = len(parts)
        self.files = parts[-1:] if parts[-1][0] == MARK else []
        self.size = sum(map(len, parts)) + (size_of(parts[-1]) if self.files else 0)
        self.stored = stored

    def receive(self, frame: TaskResults) -> None:
        self._map.receive(frame, self)

    def lose(self, error: BaseException) -> None:
        self._map.lose(self, error)
