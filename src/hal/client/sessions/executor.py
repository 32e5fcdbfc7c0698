"""The executor of a session. Imports no NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from hal.client.sessions.core import Options, SessionCore
from hal.client.sessions.dependent import DependentFuture, futures_in
from hal.client.sessions.labels import tags_from
from hal.client.sessions.mapping import TaskMap, title_of
from hal.core.model.errors import SpecError
from hal.runtime.commands import CommandEnd, run_command
from hal.runtime.shared_values import SharedValue, take_used
from hal.runtime.task_context import depth_of_children
from hal.wire.frames.sessions import MAX_ATTEMPTS, MAX_KEY, MAX_PRIORITY

MAX_TIMEOUT_S: Final = 30 * 86_400
if TYPE_CHECKING:
    from hal.client.sessions.failures import FailedTask
    from hal.wire.frames.sessions import SessionNumbers

P = ParamSpec("P")
T = TypeVar("T")


class Session(Executor):
    """The tasks of one client in a session.

    Use it as any executor: `submit`, `map`, `shutdown`, `with`. Functions, arguments and results are pickled; functions
    and classes of `__main__`, lambdas and closures travel by value. A function is sent once, as it is when it is first
    used. A task whose worker dies runs again elsewhere.
    """

    def __init__(self, core: SessionCore, options: Options | None = None) -> None:
        """Use `open_session`."""
        self._core = core
        self._cores: tuple[SessionCore, ...] = (core,)
        """Connections to all brokers of the session."""
        self._file = core.session
        self._options = options or Options()

    def options(
        self,
        *,
        priority: int | None = None,
        attempts: int | None = None,
        once: bool | None = None,
        timeout: float | None = None,
        tags: str | Iterable[str] | None = None,
        shape: str | None = None,
        key: str | None = None,
    ) -> Session:
        """Return the same session with other options for the tasks that are submitted through it.

        Args:
            priority: tasks of a higher one begin before others of this client.
            attempts: how often a task may run until it raises no exception.
            once: a task that may have begun is not run again when its worker dies; it fails with `TaskLostError`.
            timeout: seconds that a task may run; then it is ended with its worker, and fails with `TaskTimeoutError`.
                0: as long as it takes.
            tags: texts by which you tell tasks apart in `failures`, `numbers` and `hal session show`.
            shape: of the slots in which the tasks may run; '': that of the session itself.
            key: tasks of one key run one by one, in the order in which this client submits them, in the same worker as
                long as it is there; what it keeps of them is `key_state()`. '': in any worker.
        Raises:
            SpecError: a value is out of its range.
        """
        if priority is not None and not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            raise SpecError(f"priority {priority} of tasks", hint=f"between -{MAX_PRIORITY} and {MAX_PRIORITY}")
        if attempts is not None and not 1 <= attempts <= MAX_ATTEMPTS:
            raise SpecError(f"{attempts} attempts of a task", hint=f"between 1 and {MAX_ATTEMPTS}")
        if timeout is not None and not 0 <= timeout <= MAX_TIMEOUT_S:
            raise SpecError(f"a timeout of {timeout:g} s", hint=f"between 0 and {MAX_TIMEOUT_S}")
        if shape and shape not in (known := self._file.shapes):
            raise SpecError(
                f"the session has no slots of shape '{shape}'",
                hint=f"shapes: {', '.join(known)}" if known else "client.session(shapes=…) declares shapes",
            )
        if key is not None and len(key) > MAX_KEY:
            raise SpecError(f"a key of {len(key)} characters", hint=f"at most {MAX_KEY}")
        old = self._options
        return self._with(
            Options(
                priority=old.priority if priority is None else priority,
                attempts=old.attempts if attempts is None else attempts,
                once=old.once if once is None else once,
                timeout_ms=old.timeout_ms if timeout is None else math.ceil(timeout * 1_000),
                tags=old.tags if tags is None else tags_from(tags),
                shape=old.shape if shape is None else shape,
                key=old.key if key is None else key,
            )
        )

    def _with(self, options: Options) -> Session:
        return Session(self._core, options)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit one call; returns its future.

        Arguments that are futures, of any executor, are replaced by their results: the task is submitted once all are
        there, and fails as the first of them that has none. Waits while the session's window of unanswered tasks is
        full. Arguments that cannot be pickled fail the future.

        Raises:
            SessionLost: the connection is gone.
            RuntimeError: after `shutdown`.
        """
        core = self._core
        if needed := futures_in(args, kwargs):
            core.wait_for_room()
            return DependentFuture(core, needed, (fn, args, kwargs, self._task_options()))
        try:
            data = core.encode([args, kwargs] if kwargs else args)
        except Exception as error:
            take_used()
            core.check()
            return core.failed(error)
        return core.submit(fn, data, take_used(), self._task_options())

    def command(self, argv: Sequence[str | bytes]) -> Future[CommandEnd]:
        """Run a command as a task, in the directory and environment of its slot and without input.

        Args:
            argv: the command, which is looked for in PATH, and its arguments.
        Returns: the future of its exit code (that of a signal is negative), output and standard error, of each at most
            16 MiB. One that cannot be started is an OSError.
        Raises: as `submit`.
        """
        return self.submit(run_command, list(argv))

    def flush(self) -> None:
        """Send tasks at once that wait to be sent with others."""
        for core in self._cores:
            core.flush()

    @property
    def recovered(self) -> list[Future[Any]]:
        """In a durable session, futures of the tasks that an earlier process with the same `client` has submitted, and
        whose results it has not received, in the order in which it submitted them."""
        return [future for core in self._cores for future in core.recovered]

    def put(self, value: Any) -> SharedValue:
        """Send a value once, for many tasks; returns what stands for it in their arguments and closures.

        A task gets the value where it was given the reference. A worker reads it when a task first needs it; of a large
        one, all workers of a node share the memory. It is kept until this session is closed.

        Raises: what pickling it raises; SessionLost, RuntimeError as `submit`.
        """
        self._core.check()
        data = self._core.encode(value)
        return SharedValue(self._core.store_object(data))

    def update(self, shared: SharedValue, value: Any) -> None:
        """Replace a shared value for all tasks that are given it from now on; those before have the former one.

        Raises: as `put`.
        """
        self._core.check()
        shared.ref = self._core.store_object(self._core.encode(value), shared.ref)

    def numbers(self, *, slots: bool = False) -> SessionNumbers:
        """How the session goes: tasks that wait and were done, slots, latencies.

        Args:
            slots: of each slot, function and tag, and over time, too.
        Raises:
            UnreachableError: the broker is gone.
        """
        from hal.client.sessions.questions import ask_numbers

        return ask_numbers(self._file, slots=slots)

    def failures(self, *, tag: str = "", function: str = "") -> list[FailedTask]:
        """The tasks of this session, also those of other clients, that failed last: the newest first, at most 1,000.

        Args:
            tag, function: only those with this tag, of this function; a function is named with or without its module.
        Raises:
            UnreachableError: the broker is gone.
        """
        from hal.client.sessions.failures import failures_of

        return failures_of(self._file, tag, function)

    def progress(
        self, futures: Iterable[Future[T]], title: str = "", *, timeout: float | None = None
    ) -> Iterator[Future[T]]:
        """Yield futures as they complete, as `concurrent.futures.as_completed` does, and show on a terminal or in a
        notebook how many have.

        Args:
            title: begins the line.
            timeout: seconds from now until which all must have completed.
        Raises, when iterated:
            TimeoutError: they have not.
        """
        from hal.client.sessions.progress import as_completed_shown

        self.flush()
        return as_completed_shown(self._file, futures, title, timeout)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool | str = False,
    ) -> Iterator[T]:
        """Call a function with each item; yields the results in order.

        Tasks are sent ahead of the results that were taken, up to a window; the rest follows as results are taken.

        Args:
            timeout: seconds from now until which a result is waited for.
            chunksize: ignored: the broker decides how many tasks travel together.
            progress: show on a terminal or in a notebook how many tasks have ended, while results are taken; a text
                begins the line.
        Raises: as `submit`; when iterated, TimeoutError, and the exception of the first task that failed.
        """
        return cast(Iterator[T], self.task_map(fn, iterables, timeout, progress).results())

    def task_map(
        self,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        progress: bool | str = False,
    ) -> TaskMap:
        """What `map` iterates over."""
        self._core.check()
        tasks = TaskMap(self._core, fn, iterables, self._task_options(), timeout, title_of(progress))
        tasks.fill()
        return tasks

    @property
    def accepts_now(self) -> bool:
        """Whether `submit` would not wait now."""
        return any(core.has_room(1) for core in self._cores)

    def _task_options(self) -> Options:
        """Those of a task that is submitted now."""
        return self._options._replace(depth=depth_of_children()) if self._core.of_worker else self._options

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more, and close the connection once all tasks have ended.

        Args:
            wait: for that.
            cancel_futures: cancel tasks that no worker has.
        """
        for core in self._cores:
            core.close(cancel=cancel_futures)
        if wait:
            for core in self._cores:
                core.wait_until_answered()
