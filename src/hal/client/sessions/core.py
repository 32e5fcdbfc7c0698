"""A client's connection to the broker of a session: blocks out, results in.

A task is sent at once if everything before was confirmed; otherwise it waits for the next answer, together with the
tasks that come meanwhile, as Nagle's algorithm does it with bytes. A thread reads.
"""

from __future__ import annotations

import os
import secrets
import threading
from array import array
from collections import deque
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, WeakMethod, WeakSet

from hal.client.sessions.answers import Block, FutureBlock, RecoveredBlock, SessionFuture, Stored
from hal.client.sessions.broker_connection import connect
from hal.client.sessions.dependent import ReadyTasks
from hal.client.sessions.errors import SessionLost
from hal.client.sessions.labels import function_name
from hal.client.sessions.reconnection import Reconnection
from hal.core.model.errors import HALError, UnreachableError
from hal.runtime.exchange import MARK, size_of
from hal.runtime.frame_link import FrameLink
from hal.runtime.session_exchange import payload_exchange
from hal.runtime.session_file import SessionFile
from hal.runtime.shared_values import note_used, take_used
from hal.runtime.task_context import InitializedFunction
from hal.runtime.task_payloads import encode_function, encode_value
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    CLIENT_REPLACED,
    MAX_BLOCK_TASKS,
    MAX_CANCELLED,
    MAX_INLINE_BYTES,
    MAX_NEEDS,
    SESSION_CLOSED,
    CancelTasks,
    DropObjects,
    KeptTasks,
    SessionFrame,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksCancelled,
)

BATCH_TASKS: Final = 256
"""Tasks that wait to be sent, at most."""
BATCH_BYTES: Final = 256 << 10
MAX_FUNCTIONS: Final = 512
"""Functions that are kept for further tasks."""


Weak = ReferenceType[Any]


class Options(NamedTuple):
    """What tasks of a block share besides their function."""

    priority: int = 0
    attempts: int = 1
    once: bool = False
    timeout_ms: int = 0
    depth: int = 0
    tags: tuple[str, ...] = ()
    shape: str = ""
    key: str = ""


def _weak(function: Callable[..., Any], gone: Callable[[Weak], object] | None = None) -> Weak | None:
    """A key for a function that does not keep it, nor the object whose method it is; None: it cannot have one.

    Args:
        gone: called with the key when nobody has the function any more, at any moment.
    """
    try:
        key: Weak = WeakMethod(function, gone) if isinstance(function, MethodType) else ReferenceType(function, gone)
        hash(key)
    except TypeError:
        return None
    return key


_OPEN: Final[WeakSet[SessionCore]] = WeakSet()
"""Connections of this process."""


def _disown_all() -> None:
    for core in list(_OPEN):
        core.disown()


os.register_at_fork(after_in_child=_disown_all)


class SessionCore:
    """The connection, shared by everything that submits over it. Safe from several threads.

    Attributes:
        shard: the number of the broker, of a session with several.
    """

    shard = 0

    def __init__(
        self,
        session: SessionFile,
        *,
        worker: int = 0,
        initializer: Callable[..., object] | None = None,
        arguments: tuple[Any, ...] = (),
        client: str = "",
        initialized: str = "",
    ) -> None:
        """
        Args:
            client: the key with which a client of a durable session comes back; '': a new one.
            worker: the number of the worker whose tasks this is for; 0: of none.
            initializer, arguments: called in each worker before the first task of this client.
            initialized: names the initialiser, if it is that of another client.
        Raises: as `connect`.
        """
        self._session = session
        self._durable = Reconnection(client or secrets.token_hex(16)) if session.journal and not worker else None
        self._link, opened = connect(session, worker, self._durable.key if self._durable else "")
        self.of_worker = bool(worker)
        self._initializer, self._arguments = initializer, arguments
        self._key = initialized or f"{session.id}/{opened.number}"
        self.number = opened.number
        self.exchange = payload_exchange(session, opened, "a")
        """For what is larger than a frame."""
        self._window_tasks = opened.window_tasks
        self._window_bytes = opened.window_bytes
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        """Of answers: the window has room again, or nothing is unanswered."""
        self._blocks: dict[int, Block] = {}
        self._stored: dict[Weak, Stored] = {}
        """Functions that somebody has."""
        self._gone: deque[Weak] = deque()
        """Of these, which nobody has any more."""
        self._objects = 0
        self._object_files: dict[int, bytes] = {}
        """Objects that are files, by id."""
        self._replaced: list[int] = []
        """Objects that were replaced and not dropped."""
        self._next_task = 0
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._reserved = 0
        """Tasks that wait for the results of others."""
        self.ready = ReadyTasks(self)
        self._confirmed = True
        """Something was received since the last block was sent."""
        self._futures: list[SessionFuture] = []
        """Tasks that wait to be sent, with the next ones."""
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._files: list[bytes] = []
        self._needs: set[int] = set()
        self._function: Stored | None = None
        self._options = Options()
        self._cancelling: deque[tuple[threading.Event, CancelTasks]] = deque()
        """What was not answered, in order."""
        self._waiting_for_room = 0
        self.closed = False
        """Nothing more is accepted."""
        self._given_up = ""
        """Why nothing is awaited any more; '': it is."""
        self._parted = False
        """The broker is not dialled again when the connection ends."""
        self.finished = False
        """The connection was closed because all was answered."""
        self.lost: SessionLost | None = None
        self.recovered: list[SessionFuture] = []
        """Of tasks that an earlier process of this client has submitted."""
        if self._durable is not None:
            self._recover(self._durable.read_kept(self._link))
        self._reader = threading.Thread(target=self._read, name="hal-session", daemon=True)
        self._reader.start()
        _OPEN.add(self)

    @property
    def pending(self) -> int:
        """Tasks that have not ended."""
        return self._unanswered + self._reserved

    @property
    def session(self) -> SessionFile:
        """Where the session is."""
        return self._session

    def disown(self) -> None:
        """In a child that this process forked: the connection is the parent's, and no thread reads."""
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._futures, self._parts = [], []
        self._unanswered = 0
        self.lost = SessionLost("the session belongs to the process that opened it; open it in the forked one again")

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def encode(self, value: Any) -> bytes:
        """Encode arguments; what they refer to is taken by the next block of this thread.

        Raises: what pickling them raises.
        """
        return encode_value(value, self.exchange, self.number)

    def encode_function(self, function: Callable[..., Any]) -> bytes:
        """Encode a function, with the initialiser that is called before it; as `encode`."""
        called: Any = function
        if self._initializer is not None:
            called = InitializedFunction(self._key, self._initializer, self._arguments, function)
        return encode_function(called)

    def submit(
        self,
        function: Callable[..., Any],
        data: bytes,
        needs: frozenset[int],
        options: Options,
        waited: SessionFuture | None = None,
    ) -> SessionFuture:
        """Submit a task.

        Args:
            needs: shared values that it uses.
            waited: its future, if it was reserved; then it leaves when others do.
        Returns: its future, which has failed if the function cannot be pickled.
        Raises:
            SessionLost: the connection is gone.
            RuntimeError: after `close`.
            Exception: of pickling the function of a task that was reserved.
        """
        try:
            encoded = self._encode_unless_stored(function)
        except Exception as error:
            take_used()
            if waited is not None:
                raise
            self.check()
            return self.failed(error)
        with self._lock:
            self.check(late=waited is not None)
            if waited is None and not self.has_room(1):
                self._wait_for_room(1)
            stored = self._store(function, encoded)
            if self._futures and (stored is not self._function or options != self._options):
                self.flush()
            self._function, self._options = stored, options
            future = waited or SessionFuture(self, -1)
            future.task = self._next_task
            self._next_task += 1
            self._futures.append(future)
            size = len(data)
            if data[0] == MARK:
                self._files.append(data)
                size = size_of(data)
            if needs:
                self._needs |= needs
            self._parts.append(data)
            self._parts_bytes += size
            self._unanswered += 1
            self._unanswered_bytes += size
            if (self._confirmed and waited is None) or len(self._futures) >= BATCH_TASKS or self._is_full:
                self.flush()
            return future

    def failed(self, error: BaseException) -> SessionFuture:
        """The future of a task that was never submitted."""
        future = SessionFuture(self, -1)
        future.end(error=error)
        return future

    def submit_block(
        self, stored: Stored, parts: list[bytes], needs: frozenset[int], options: Options, block: Block
    ) -> int:
        """Submit tasks together; returns the id of the first.

        Args:
            needs: shared values that they use.
            block: receives their results.
        Raises: as `submit`.
        """
        with self._lock:
            self.check()
            self.flush()
            first = self._next_task
            self._next_task += len(parts)
            self._unanswered += len(parts)
            self._unanswered_bytes += block.size
            self._send_block(first, block, parts, needs, options)
            return first

    def _encode_unless_stored(self, function: Callable[..., Any]) -> tuple[bytes, frozenset[int]] | None:
        """What the broker is sent of a function, and the shared values that it uses; None: the broker has it.

        Nothing is locked meanwhile: code of the user's own runs, which may take long, or wait for tasks.

        Raises: what pickling it raises.
        """
        with self._lock:
            key = _weak(function)
            if key is not None and key in self._stored:
                return None
        before = take_used()  # of arguments that were encoded already
        data = self.encode_function(function)
        used = take_used()
        note_used(before)
        return data, used

    def _store(self, function: Callable[..., Any], encoded: tuple[bytes, frozenset[int]] | None) -> Stored:
        """Send a function to the broker, unless it has it.

        Args:
            encoded: as `_encode_unless_stored` has given it.
        Raises: what pickling it raises, if it was forgotten meanwhile.
        """
        key = _weak(function)
        if key is not None and (known := self._stored.get(key)) is not None:
            return known
        self._forget_gone()
        encoded = encoded or self._encode_unless_stored(function)
        assert encoded is not None
        data, used = encoded
        if len(self._stored) >= MAX_FUNCTIONS:
            self._forget_functions()
        stored = Stored(self.store_object(data, name=function_name(function)), used)
        key = _weak(function, self._gone.append)
        if key is None:
            stored.kept = False
        else:
            self._stored[key] = stored
        return stored

    def hold(self, function: Callable[..., Any]) -> Stored:
        """Send a function to the broker, once; it is kept until `let_go`.

        Raises: what pickling it raises.
        """
        encoded = self._encode_unless_stored(function)
        with self._lock:
            stored = self._store(function, encoded)
            stored.uses += 1
            return stored

    def let_go(self, stored: Stored) -> None:
        """Blocks that were sent go on."""
        with self._lock:
            self._end_use(stored)

    def store_object(self, data: bytes, replaces: int = 0, name: str = "") -> int:
        """Send an object to the broker; returns its id.

        Args:
            replaces: id of an object that no task needs that is submitted from now on.
            name: of a function, for people.
        """
        with self._lock:
            self._objects += 1
            ref = (self.number << 32) + self._objects
            if data[0] == MARK:
                self._object_files[ref] = data
            pieces = [data[at : at + MAX_INLINE_BYTES] for at in range(0, len(data), MAX_INLINE_BYTES)]
            last = len(pieces) - 1
            frames = [
                StoreObject(ref=ref, data=one, more=at < last, name="" if at else name) for at, one in enumerate(pieces)
            ]
            if self._durable is not None:
                self._durable.objects[ref] = frames
            self._send(*frames)
            if replaces:
                self._replaced.append(replaces)
                self._drop_replaced()
            return ref

    def _drop_replaced(self) -> None:
        """Drop objects that were replaced, when no task is left that may need them."""
        if self._unanswered or self._reserved or not self._replaced:
            return
        needed = set().union(*(stored.needs for stored in self._stored.values()))
        refs = [ref for ref in self._replaced if ref not in needed][:MAX_NEEDS]
        if refs:
            self._drop(refs)
            self._replaced = [ref for ref in self._replaced if ref not in set(refs)]
            for ref in refs:
                if (payload := self._object_files.pop(ref, None)) is not None and self.exchange is not None:
                    self.exchange.remove(payload)

    def flush(self) -> None:
        """Send the tasks that wait to be sent."""
        with self._lock:
            if not self._futures or self._function is None:
                return
            futures, parts, size = self._futures, self._parts, self._parts_bytes
            block = FutureBlock(futures, size, self._function, self._files)
            needs = self._needs
            self._futures, self._parts, self._parts_bytes, self._files, self._needs = [], [], 0, [], set()
            self._send_block(futures[0].task, block, parts, frozenset(needs), self._options)

    def cancel(self, ranges: list[tuple[int, int]], *, wait: bool) -> None:
        """Cancel tasks that no worker has; they are answered as cancelled.

        Args:
            wait: until they are.
        """
        done = threading.Event()
        with self._lock:
            if self.lost is not None:
                return
            self.flush()
            frame = CancelTasks(ranges=tuple(ranges))
            self._cancelling.append((done, frame))
            self._send(frame)
        if wait and not self._reads_here():
            done.wait()

    def close(self, *, cancel: bool = False) -> None:
        """Accept nothing more; the connection ends once all is answered.

        Args:
            cancel: tasks that no worker has.
        """
        with self._lock:
            self.closed = True
            self.flush()
            ranges = [(first, MAX_BLOCK_TASKS) for first in self._blocks] if cancel else []
        for at in range(0, len(ranges), MAX_CANCELLED):
            self.cancel(ranges[at : at + MAX_CANCELLED], wait=False)
        with self._lock:
            self._end_if_done()

    def leave(self) -> None:
        """Close the connection; tasks of a durable session that were submitted go on, and their results are kept."""
        link = None
        while self.lost is None and link is not self._link:
            link = self._link
            self.cancel([], wait=True)  # it is answered after all before it is in the journal
        with self._lock:
            self._parted = self.closed = True
            self._link.close()

    def give_up(self, reason: str) -> None:
        """Close the connection, since nothing more will come over it; futures without a result fail with the reason."""
        with self._lock:
            if self.lost is None and not self._is_over:
                self._given_up = reason
                self._parted = True
                self._link.close()

    def wait_until_answered(self) -> None:
        """Wait until all tasks are answered or lost."""
        with self._room:
            self._waiting_for_room += 1
            while (self._unanswered or self._reserved) and self.lost is None:
                self._room.wait()
            self._waiting_for_room -= 1
        if not self._reads_here():
            self._reader.join()

    @property
    def _is_full(self) -> bool:
        """Whether the tasks that wait to be sent are as many as leave together."""
        return self._parts_bytes >= BATCH_BYTES or len(self._needs) >= MAX_NEEDS // 2

    def has_room(self, tasks: int) -> bool:
        """Whether so many tasks fit into the window."""
        return self._unanswered + tasks <= self._window_tasks and self._unanswered_bytes < self._window_bytes

    def reserve(self) -> None:
        """A task will be submitted later; `close` and `wait_until_answered` wait for that. It takes no room until then.

        Raises: as `submit`.
        """
        with self._lock:
            self.check()
            self._reserved += 1

    def release(self) -> None:
        """It was submitted, or will never be."""
        with self._lock:
            self._reserved -= 1
            if self._waiting_for_room:
                self._room.notify_all()
            self._end_if_done()

    def _reads_here(self) -> bool:
        """Whether this thread must not wait for answers, since it reads them."""
        return threading.current_thread() is self._reader

    @property
    def receives_now(self) -> bool:
        """Whether this thread is the one that reads."""
        return threading.get_ident() == self._reader.ident

    def flush_if_confirmed(self) -> None:
        """Send the tasks that wait to be sent, unless an answer comes soon."""
        with self._lock:
            if self._confirmed:
                self.flush()

    def check(self, *, late: bool = False) -> None:
        """Check that tasks can be submitted.

        Args:
            late: also after `close`.
        Raises: as `submit`.
        """
        if self.closed and not late:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.lost is not None:
            raise self.lost

    def wait_for_room(self, tasks: int = 1) -> None:
        """Wait until the window has room for so many tasks; not in the thread that makes room.

        Raises: as `submit`.
        """
        with self._lock:
            if not self.has_room(tasks):
                self._wait_for_room(tasks)

    def _wait_for_room(self, tasks: int) -> None:
        if self._reads_here():
            return
        self.flush()
        self._waiting_for_room += 1
        while not self.has_room(tasks) and self.lost is None:
            self._room.wait()
        self._waiting_for_room -= 1
        self.check(late=True)

    def _send_block(
        self, first: int, block: Block, parts: list[bytes], needs: frozenset[int], options: Options
    ) -> None:
        self._blocks[first] = block
        block.stored.uses += 1
        self._confirmed = False
        frame = SubmitTasks(
            first=first,
            function=block.stored.ref,
            sizes=array("I", map(len, parts)).tobytes(),
            payload=b"".join(parts),
            # Others were pickled for another session; a task that is given one fails.
            needs=tuple(ref for ref in needs | block.stored.needs if ref >> 32 == self.number),
            priority=options.priority,
            attempts=options.attempts,
            once=options.once,
            timeout_ms=options.timeout_ms,
            depth=options.depth,
            tags=options.tags,
            shape=options.shape,
            key=options.key,
        )
        if self._durable is not None:
            self._durable.blocks[first] = frame
        self._send(frame)

    def _drop(self, refs: list[int]) -> None:
        if self.lost is not None:  # or the connection is that of the process which this one was forked from
            return
        if self._durable is not None:
            for ref in refs:
                self._durable.objects.pop(ref, None)
        self._send(DropObjects(refs=tuple(refs)))

    def _send(self, *frames: SessionFrame) -> None:
        try:
            self._link.send(*frames)
        except UnreachableError:
            self._link.close()  # the reader notices

    def _forget_functions(self) -> None:
        for key, stored in list(self._stored.items())[: MAX_FUNCTIONS // 2]:
            if not stored.uses and stored is not self._function:
                del self._stored[key]
                self._drop([stored.ref])

    def _forget_gone(self) -> None:
        """Drop functions that nobody can call any more."""
        while self._gone:
            stored = self._stored.pop(self._gone.popleft(), None)
            if stored is not None:
                stored.kept = False
                stored.uses += 1
                self._end_use(stored)

    def _end_use(self, stored: Stored) -> None:
        """One use of a function is over; it is dropped with the last one, if it is not found again."""
        stored.uses -= 1
        if not stored.uses and not stored.kept and not (self._futures and stored is self._function):
            self._drop([stored.ref])

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recover(self, kept: list[KeptTasks]) -> None:
        """Make futures for tasks of an earlier process."""
        self._next_task, self._objects = kept[-1].next_task, kept[-1].next_object
        found: dict[int, dict[int, SessionFuture]] = {}
        for frame in kept:
            for block, index, count in frame.tasks:
                parts = found.setdefault(block, {})
                parts.update({at: SessionFuture(self, block + at) for at in range(index, index + count)})
        for block, futures in sorted(found.items()):
            self._blocks[block] = RecoveredBlock(futures)
            self._unanswered += len(futures)
            self.recovered += futures.values()

    def _read(self) -> None:
        reason = self._read_link()
        while self._durable is not None and not self._parted and not self._is_over:
            link, failure = self._durable.dial_again(self._session, self.number, reason)
            if link is None:
                reason = failure
                break
            self._go_on(link, self._durable)
            reason = self._read_link()
        self._lose(SessionLost(f"the session is lost: {self._given_up or reason}"))

    def _go_on(self, link: FrameLink[SessionFrame], durable: Reconnection) -> None:
        """Send again over another connection what the broker may not have."""
        with self._lock:
            self._link = link
            self._confirmed = not durable.blocks  # what is sent again is answered
            self._send(*durable.frames_again(), *(frame for _, frame in self._cancelling))

    def _read_link(self) -> str:
        """Read until the connection ends; returns why it did."""
        reason = "the connection to the broker broke"
        try:
            while frames := self._link.receive():
                for frame in frames:
                    match frame:
                        case TaskResults():
                            self._receive(frame)
                        case TasksCancelled():
                            if self._cancelling:
                                self._cancelling.popleft()[0].set()
                        case Goodbye():
                            reason = frame.reason
                            self._parted = self._parted or frame.code in (CLIENT_REPLACED, SESSION_CLOSED)
                        case _:
                            pass
                self.ready.submit()
                with self._lock:
                    self._confirmed = True
                    if self._gone:
                        self._forget_gone()
                    if self._durable is not None and (told := self._durable.take_acknowledgements()):
                        self._send(*told)
                    self.flush()
                    self._end_if_done()
        except HALError as error:
            reason = str(error)
        return reason

    def _receive(self, frame: TaskResults) -> None:
        count = len(frame.statuses)
        with self._lock:
            if self._durable is not None and not self._durable.is_new(frame, frame.block in self._blocks):
                return
            block = self._blocks[frame.block]
            block.left -= count
            if not block.left:
                del self._blocks[frame.block]
                self._end_use(block.stored)
                self._unanswered_bytes -= block.size
                self._remove_files(block)
                if self._durable is not None:
                    self._durable.forget(frame.block)
            self._unanswered -= count
            if self._replaced and not self._unanswered:
                self._drop_replaced()
            if self._futures:
                self.flush()
            if self._waiting_for_room:
                self._room.notify_all()
        block.receive(frame)

    def _remove_files(self, block: Block) -> None:
        if block.files and self.exchange is not None:
            for payload in block.files:
                self.exchange.remove(payload)

    @property
    def _is_over(self) -> bool:
        """Whether all that was accepted has ended, and nothing more is accepted."""
        return self.closed and not self._unanswered and not self._reserved

    def _end_if_done(self) -> None:
        if self._is_over and not self._parted:
            self.finished = self.finished or self.lost is None
            if self._durable is not None:
                self._send(Goodbye(reason="the client has closed the session"))
            self._link.close()

    def _lose(self, error: SessionLost) -> None:
        with self._lock:
            self._link.close()
            self.lost = error
            blocks = list(self._blocks.values())
            if self._futures and self._function is not None:
                blocks.append(FutureBlock(self._futures, self._parts_bytes, self._function, self._files))
            self._blocks.clear()
            self._futures, self._parts = [], []
            self._unanswered = self._unanswered_bytes = 0
            for event, _ in self._cancelling:
                event.set()
            self._room.notify_all()
        for block in blocks:
            if self._durable is None:  # otherwise the tasks go on
                self._remove_files(block)
            block.lose(error)
        self.ready.submit()
