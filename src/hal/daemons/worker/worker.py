"""Runs tasks: the thread that was started runs them and, while it has none, reads what the broker sends.

While a task runs long, a second thread, the watcher, reads in its place, so that a recall is answered and results that
are ready leave. So short tasks cost no change of threads, and long ones hold nothing up. The watcher also ends the
process when a task has run for longer than it may.

A task that waits for another task gives its slot back: another thread runs tasks until it goes on. One runs at a time.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, NamedTuple

from hal.core.model.errors import HALError, UnreachableError, error_from_code
from hal.daemons.worker.baton import Baton
from hal.daemons.worker.memory import MemoryBound, SharedObjects
from hal.daemons.worker.runners import Runners
from hal.runtime.commands import end_commands
from hal.runtime.exchange import MARK
from hal.runtime.frame_link import FrameLink
from hal.runtime.last_words import Death
from hal.runtime.session_exchange import payload_exchange
from hal.runtime.session_file import SessionFile
from hal.runtime.session_link import dial_broker
from hal.runtime.shared_values import resolve_with
from hal.runtime.surroundings import begin_tasks, end_tasks, keep_surroundings
from hal.runtime.task_context import enter_worker, set_depth, set_state
from hal.runtime.task_payloads import decode_value, encode_error, encode_value
from hal.runtime.worker_process import end_child
from hal.wire.agree import SPOKEN
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    MAX_DEATH,
    SESSION_CLOSED,
    SESSIONS,
    SHARD_CLOSED,
    SLOT_RETIRED,
    DropObjects,
    LeaveSlot,
    MoveSlot,
    OpenSession,
    RecallTasks,
    RunTasks,
    SessionFrame,
    SessionOpened,
    StoreObject,
    TaskGoesOn,
    TasksDone,
    TasksReturned,
    TaskStatus,
    TaskWaits,
)
from hal.wire.roles import Role

DIAL_S: Final = 10.0
DIAL_FOR_S: Final = 20.0
DIAL_PAUSE_S: Final = 0.02
"""Between two tries to reach a broker that does not listen yet."""
FLUSH_S: Final = 0.004
"""Results leave when so much time has passed since the last ones left, and at the end of their run."""
WATCH_S: Final = 0.02
"""How often it looks for a task that has run for too long, while it reads."""
EXIT_TIMED_OUT: Final = 77
"""Of the process: a task had to be ended with it."""
EXIT_OVER: Final = 0
"""Of a worker whose session is over."""
EXIT_BROKEN: Final = 76
"""Of the process that runs tasks: its connection broke, and another one should try."""
EXIT_LEFT: Final = 75
"""Of a worker that gives its place back (EX_TEMPFAIL)."""
EXIT_MOVED: Final = 79
"""Of the process that runs tasks: another one is to dial another broker of the session."""
EXIT_RENEWED: Final = 78
"""Of the process that runs tasks: it uses too much memory, and another one is to take its place."""
MAX_STATES: Final = 1 << 17
"""Keys of which a worker keeps a state: twice as many as those whose worker a broker remembers."""
GRACE_S: Final = 10.0
"""So much time a task has when nobody waits for its result any more; then it is ended with the process."""
LOOK_S: Final = 0.005
"""How often the watcher looks whether a task runs long."""
PARKED_LOOKS: Final = 40
"""After so many looks at a worker without a task it waits for the next one."""
PARKED_S: Final = 1.0
BATCH_BYTES: Final = 4 << 20
"""Results of one frame."""

Link = FrameLink[SessionFrame]


class Hello(NamedTuple):
    """What a worker says of itself.

    Attributes:
        shape: of its slot.
        first: the number of the first of the threads of its process; 0: it is that.
        former: the number of the worker that this one replaces; 0: none.
        death: how that one ended.
    """

    shape: str = ""
    first: int = 0
    former: int = 0
    death: Death | None = None


def open_session(session: SessionFile, hello: Hello, dial_s: float = DIAL_FOR_S) -> tuple[Link, SessionOpened]:
    """Dial the session's broker, again if it does not listen yet, or dies before it answers.

    Args:
        dial_s: a broker that nobody reaches for so long is given up.
    Raises:
        UnreachableError: none answers.
        HALError: it refuses this process.
    """
    began_s = time.monotonic()
    while True:
        try:
            return _open(session, hello)
        except UnreachableError:
            if time.monotonic() - began_s >= dial_s:
                raise
        time.sleep(DIAL_PAUSE_S)


def _open(session: SessionFile, said: Hello) -> tuple[Link, SessionOpened]:
    link = dial_broker(session, SESSIONS, DIAL_S)
    death = said.death
    hello = OpenSession(
        versions=SPOKEN,
        role=Role.WORKER,
        session=session.id,
        token=session.token,
        name=f"{os.environ.get('HAL_NODE') or os.uname().nodename}:{os.getppid()}"[:256],
        pid=os.getpid(),
        task=task_of_job(),
        shape=said.shape,
        first=said.first,
        former=said.former,
        death=f"{death.how}\n{death.left}"[:MAX_DEATH] if death is not None else "",
        replaced=True,
    )
    link.send(hello)
    frames = link.receive()
    match frames[:1]:
        case [SessionOpened() as opened] if len(frames) == 1:
            return link, opened
        case [SessionOpened() as opened]:
            link.put_back(frames[1:])
            return link, opened
        case [Goodbye() as goodbye]:
            raise error_from_code(goodbye.code, goodbye.reason, goodbye.hint)
    raise UnreachableError("the broker closed the connection")


def task_of_job() -> int:
    """Which task of the session's job this is; 0 outside one."""
    text = os.environ.get("HAL_TASK", "")
    return int(text) if text.isascii() and text.isdigit() else 0


class _Run:
    """Tasks that were received together.

    Attributes:
        waiting: indexes of those that have not begun; both threads take from it.
        results: status and bytes of those that have ended and were not sent.
        sent: how many were sent.
        since: when the first task that was not sent began.
        ended: when the last task that ended did.
    """

    __slots__ = ("ended", "frame", "offsets", "results", "sent", "since", "view", "waiting")

    def __init__(self, frame: RunTasks) -> None:
        self.frame = frame
        sizes = memoryview(frame.sizes).cast("I")
        self.offsets = list(accumulate(sizes, initial=0))
        self.view = memoryview(frame.payload)
        self.waiting = deque(range(len(sizes)))
        self.results: deque[tuple[int, bytes]] = deque()
        self.sent = 0
        self.since = self.ended = 0.0


class Worker:
    """One connection to a broker, and the tasks that come over it."""

    def __init__(
        self,
        link: Link,
        opened: SessionOpened,
        session: SessionFile,
        objects: SharedObjects | None = None,
        bound: MemoryBound | None = None,
    ) -> None:
        """
        Args:
            objects: what all threads of the process share.
            bound: of the memory of the process.
        """
        self._link = link
        self._kept = objects or SharedObjects()
        self._bound = bound or MemoryBound(0)
        self._states: OrderedDict[str, dict[Any, Any]] = OrderedDict()
        """What tasks keep of their keys."""
        self.number = opened.number
        self._exchange = payload_exchange(session, opened, f"w{opened.number}")
        self._shared: dict[int, bytes] = {}
        """Values for many tasks that are files."""
        self._runs: deque[_Run | StoreObject | DropObjects] = deque()
        """What has arrived, in order."""
        self._values: dict[int, Any] = {}
        self._session = session
        self._baton = Baton()
        self._runners = Runners(self._work)
        self._deadline_s = 0.0
        """When the present task must have ended; 0: it may run on."""
        self._objects: dict[int, list[bytes]] = {}
        self._functions: dict[int, Callable[..., Any]] = {}
        self._reading = threading.Lock()
        """Held by the thread that reads."""
        self._arrived = threading.Condition()
        """Of runs, for the main thread while the watcher reads."""
        self._flushing = threading.Lock()
        self._current: _Run | None = None
        self._begun = 0
        """Tasks so far, the present one included."""
        self._watched = False
        """The watcher reads, because a task runs long; then each result leaves at once."""
        self._awake = threading.Event()
        self._ended = False
        self._returned = threading.Event()
        """The main thread has ended its last task after that."""
        self._in_order = False
        """The broker said that the session is over."""
        self._retired = False
        """The broker said that it should give its place back."""
        self.moves_to = -1
        """The number of the broker to which this one has sent it; -1: to none."""
        self.closed = False
        """The broker said that it ends, but not the session."""
        self._forked = False

    def run(self) -> int:
        """Run tasks until the connection ends; returns the exit code. A task that goes on then has `GRACE_S`."""
        os.register_at_fork(after_in_child=self._note_fork)
        if threading.current_thread() is threading.main_thread():
            keep_surroundings()
        threading.Thread(target=self._watch, name="hal-watcher", daemon=True).start()
        self._work()
        self._returned.set()
        if self._exchange is not None:
            self._exchange.close()
        return self._exit_code

    @property
    def _exit_code(self) -> int:
        if self._in_order:
            return EXIT_OVER
        if self.moves_to >= 0 or self.closed:
            return EXIT_MOVED
        if self._retired and self._bound.passed:
            return EXIT_RENEWED
        return EXIT_LEFT if self._retired else EXIT_BROKEN

    def _work(self) -> None:
        resolve_with(self._value)
        enter_worker(self._session, self.number, self._give_slot_back)
        while True:
            self._runners.stay()
            run = self._next()
            if run is None:
                self._runners.end()
                return
            self._baton.take()
            begin_tasks()
            try:
                self._execute(run)
            finally:
                end_tasks()
                self._baton.give()
            if not self._states and self._bound.is_passed():
                self._bound.tell()

    @contextmanager
    def _give_slot_back(self) -> Iterator[None]:
        """Let other tasks run while this thread, which runs one, waits."""
        run = self._current
        if run is None or self._forked or self._runners.full:
            yield
            return
        began, deadline_s = time.monotonic(), self._deadline_s
        self._deadline_s = 0.0
        self._return_tasks_of(run)  # results of a run leave in order, and this one takes a while
        self._flush(run)
        self._send(TaskWaits(run=run.frame.run))
        self._current = None
        self._baton.give()
        self._runners.wait_begins()
        try:
            yield
        finally:
            self._runners.wait_ends()
            self._baton.take_first()
            self._current = run
            self._deadline_s = deadline_s and deadline_s + time.monotonic() - began
            set_depth(run.frame.depth)
            self._send(TaskGoesOn(run=run.frame.run))

    def leave(self) -> None:
        """Ask the broker for a goodbye: nothing more is begun. Also called by a signal's handler, while this thread may
        be sending."""
        threading.Thread(target=self._leave, name="hal-leave", daemon=True).start()

    def _leave(self) -> None:
        try:
            self._link.send(LeaveSlot())
        except UnreachableError:
            os._exit(EXIT_LEFT)  # nobody waits for what it runs

    def _note_fork(self) -> None:
        self._forked = True

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> _Run | None:
        """Wait for the next run; None when the connection has ended."""
        while True:
            self._wait_for_arrivals()
            if not self._runs:
                return None
            match self._runs.popleft():
                case _Run() as run:
                    return run
                case StoreObject() as frame:
                    self._objects.setdefault(frame.ref, []).append(frame.data)
                case DropObjects() as frame:
                    for ref in frame.refs:
                        for kept in (self._objects, self._functions):
                            kept.pop(ref, None)
                        if self._values.pop(ref, self) is not self:
                            self._kept.drop_value(ref)
                        if (payload := self._shared.pop(ref, None)) is not None and self._exchange is not None:
                            self._exchange.forget(payload)

    def _wait_for_arrivals(self) -> None:
        while not self._runs:
            if self._ended:
                return
            if self._reading.acquire(blocking=False):
                try:
                    self._read()
                finally:
                    self._reading.release()
            else:
                with self._arrived:
                    while not self._runs and not self._ended and self._reading.locked():
                        self._arrived.wait()
        if not self._awake.is_set():
            self._awake.set()

    def _read(self) -> None:
        """Receive frames, and act on them."""
        try:
            frames = self._link.receive()
        except HALError:
            frames = []
        if not frames:
            self._ended = True
        for frame in frames:
            match frame:
                case RunTasks():
                    self._runs.append(_Run(frame))
                case StoreObject() | DropObjects():
                    self._runs.append(frame)  # those before it use what was there before
                case RecallTasks():
                    self._return_tasks_of(self._current, *self._runs)
                    self._send(TasksReturned(run=0, index=0))
                case MoveSlot():
                    self.moves_to, self._ended = frame.shard, True
                case Goodbye():
                    self._in_order = frame.code == SESSION_CLOSED
                    self._retired = frame.code == SLOT_RETIRED
                    self.closed = frame.code == SHARD_CLOSED
                    self._ended = True
        if self._ended:  # nobody waits for what has not begun
            for run in (self._current, *self._runs):
                if isinstance(run, _Run):
                    run.waiting.clear()
            self._runs.clear()

    def _return_tasks_of(self, *runs: _Run | SessionFrame | None) -> None:
        """Give back all tasks of these that have not begun."""
        answers: list[TasksReturned] = []
        for run in runs:
            if not isinstance(run, _Run):
                continue
            first = -1
            while True:
                try:
                    first = run.waiting.pop()
                except IndexError:
                    break
            if first >= 0:
                answers.append(TasksReturned(run=run.frame.run, index=first))
        if answers:
            self._send(*answers)

    def _watch(self) -> None:
        """Read in place of the main thread while a task of it runs long, until the connection ends; end the process if
        a task goes on long after that."""
        seen, idle = -1, 0
        while not self._ended:
            time.sleep(LOOK_S)
            self._check_deadline()
            if self._current is None:
                idle += 1
                if idle > PARKED_LOOKS:
                    self._awake.clear()
                    if self._current is None and not self._runs:
                        self._awake.wait(PARKED_S)
                    idle = 0
                continue
            idle = 0
            begun = self._begun
            if begun != seen:
                seen = begun
                continue
            if not self._reading.acquire(blocking=False):
                continue
            self._watched = True
            try:
                if (run := self._current) is not None:
                    self._flush(run)
                while not self._link.ready(WATCH_S):
                    self._check_deadline()
                self._read()
            finally:
                self._watched = False
                self._reading.release()
                with self._arrived:
                    self._arrived.notify()
        if not self._returned.wait(GRACE_S):
            end_commands()
            end_child(self._exit_code)

    def _check_deadline(self) -> None:
        """End the process if its task has run for longer than it may; the rest of its tasks run elsewhere."""
        run = self._current
        if run is None or not self._deadline_s or time.monotonic() < self._deadline_s:
            return
        self._return_tasks_of(run, *self._runs)
        self._flush(run)
        with self._flushing:
            if not self._deadline_s or run is not self._current:
                return  # it has just ended
            text = f"it ran for more than {run.frame.timeout_ms / 1_000:g} s".encode()
            frame = TasksDone(
                run=run.frame.run,
                index=run.sent,
                statuses=bytes([TaskStatus.TIMED_OUT]),
                sizes=_sizes([text]),
                payload=text,
                took_us=run.frame.timeout_ms * 1_000,
            )
            self._send(frame)
            end_commands()
            os._exit(EXIT_TIMED_OUT)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _execute(self, run: _Run) -> None:
        """Run the tasks of a run that nobody takes back meanwhile."""
        self._current = run
        take = run.waiting.popleft
        view, offsets, results = run.view, run.offsets, run.results
        exchange, client = self._exchange, run.frame.function >> 32
        now = time.perf_counter
        run.since = run.ended = now()
        timeout_s = run.frame.timeout_ms / 1_000
        baton, loads, done = self._baton, pickle.loads, TaskStatus.DONE
        set_depth(run.frame.depth)
        set_state(self._state_of(run.frame))
        try:
            function = self._function(run.frame.function)
        except BaseException as error:
            function = _Raising(error)
        size = 0
        while True:
            try:
                index = take()
            except IndexError:
                break
            self._begun += 1
            if timeout_s:
                self._deadline_s = time.monotonic() + timeout_s
            try:
                part = view[offsets[index] : offsets[index + 1]]
                arguments = loads(part) if part[0] > MARK else decode_value(part, exchange)
                if type(arguments) is tuple:
                    value = function(*arguments)
                else:
                    value = function(*arguments[0], **arguments[1])
                if self._forked:
                    os._exit(0)  # a child of the task's own came back here
                data = encode_value(value, exchange, client)
                results.append((done, data))
            except BaseException as error:
                if self._forked:
                    os._exit(1)
                data = encode_error(error)
                results.append((TaskStatus.FAILED, data))
            self._deadline_s = 0.0
            value = arguments = None
            size += len(data)
            run.ended = ended = now()
            if ended - run.since > FLUSH_S or self._watched or size > BATCH_BYTES:
                self._flush(run)
                size = 0
            if baton.wanted:
                self._current = None
                baton.give()
                baton.take()
                self._current = run
        self._flush(run)
        self._current = None

    def _function(self, ref: int) -> Callable[..., Any]:
        function = self._functions.get(ref)
        if function is None:
            data = b"".join(self._objects[ref])
            function = self._functions[ref] = self._kept.function(data)
            del self._objects[ref]
        return function

    def _value(self, ref: int) -> Any:
        """A shared value."""
        if ref not in self._values:
            if ref not in self._objects:
                raise HALError(
                    f"the shared value {ref} belongs to another client", hint="put it into the session it is for"
                )
            data = b"".join(self._objects[ref])
            if data[0] == MARK:
                self._shared[ref] = data
            self._values[ref] = self._kept.value(ref, lambda: decode_value(data, self._exchange, shared=True))
        return self._values[ref]

    def _state_of(self, frame: RunTasks) -> dict[Any, Any] | None:
        """What is kept of the key of tasks; None: they have none."""
        if not frame.key:
            return None
        if frame.fresh:
            self._states.pop(frame.key, None)
        state = self._states.setdefault(frame.key, {})
        self._states.move_to_end(frame.key)
        if len(self._states) > MAX_STATES:
            self._states.popitem(last=False)
        return state

    def _flush(self, run: _Run) -> None:
        """Send the results of a run that were not sent."""
        with self._flushing:
            statuses, parts = bytearray(), []
            while True:
                try:
                    status, data = run.results.popleft()
                except IndexError:
                    break
                statuses.append(status)
                parts.append(data)
            if not parts:
                return
            ended = run.ended
            frame = TasksDone(
                run=run.frame.run,
                index=run.sent,
                statuses=bytes(statuses),
                sizes=_sizes(parts),
                payload=b"".join(parts),
                took_us=int((ended - run.since) * 1e6),
            )
            run.sent += len(parts)
            run.since = ended
            self._send(frame)

    def _send(self, *frames: SessionFrame) -> None:
        if self._forked:
            return  # the connection is the parent's
        try:
            self._link.send(*frames)
        except UnreachableError:
            self._ended = True


class _Raising:
    """Stands for a function that cannot be loaded: each of its tasks fails with the reason."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, *_args: object, **_more: object) -> Any:
        raise self._error


def _sizes(parts: list[bytes]) -> bytes:
    return array("I", map(len, parts)).tobytes()
