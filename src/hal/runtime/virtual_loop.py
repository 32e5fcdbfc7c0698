"""An asyncio event loop under virtual time: when nothing is ready, the clock jumps to the next timer.

Deterministic: the order of callbacks follows from the order in which they were scheduled, never from the machine. Every
callback belongs to the virtual process in whose context it was scheduled; a dead process's callbacks are kept and not
run (nothing of it runs any more, not even its `finally` blocks), a paused one's run when it resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RESOLUTION_S: Final = 1e-8
"""Timers so close to each other are due together. A float of seconds is that fine for two years of virtual time: with a
finer one, a timer of this very instant would never be due, from day 195 on."""
MAX_STEPS_AT_ONE_INSTANT: Final = 1_000_000
"""Callbacks at one instant beyond which something must be spinning."""
UNWINDING_ROUNDS: Final = 200


class SimulationStuckError(Exception):
    """Nothing can ever happen again, or something spins; the text says which, and lists who waits."""


class ProcessKilledError(BaseException):
    """Unwinds the code of a process that was killed in the middle of a callback; see `VirtualProcess.die_here`."""


class Owner(Protocol):
    """A virtual process, as the loop sees it."""

    name: str

    def admit(self, call: Callable[..., object], args: tuple[Any, ...]) -> bool:
        """Whether the callback may run now; if not, the owner has kept it."""

    def crashed(self, error: BaseException) -> None:
        """Handle an exception raised by a callback."""

    def began(self, task: asyncio.Task[Any]) -> None:
        """Register a task created in its context."""


OWNER: ContextVar[Owner | None] = ContextVar("hal_virtual_process", default=None)
"""The virtual process that the running code belongs to; None for the simulation itself."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of a simulation. Time begins at 0 and is in seconds, as asyncio requires."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._steps = 0
        self._steps_then = 0
        self._selector = self  # BaseEventLoop asks its selector to wait; here, waiting is virtual.
        self._clock_resolution = RESOLUTION_S
        self.stray: list[BaseException] = []
        """Exceptions that reached nobody: raised in callbacks outside every process, or of tasks never awaited."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._stray_error)

    @property
    def steps(self) -> int:
        """Callbacks run so far."""
        return self._steps

    def time(self) -> float:
        return self._now_s

    # ── what BaseEventLoop asks of its selector and of its subclass ───────────────────────────────────────────────

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the clock by `timeout` seconds instead of waiting."""
        if timeout is None:
            waiting = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self))) or "nobody"
            raise SimulationStuckError(f"nothing is due and nothing can happen any more; waiting: {waiting}")
        if timeout > 0:
            self._now_s += timeout
            self._steps_then = self._steps
        elif self._steps - self._steps_then > MAX_STEPS_AT_ONE_INSTANT:
            raise SimulationStuckError(f"{MAX_STEPS_AT_ONE_INSTANT} callbacks ran at {self._now_s:.6f} s: one spins")
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no descriptors."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody sleeps in a system call."""

    # ── callbacks belong to processes ─────────────────────────────────────────────────────────────────────────────

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._run, callback, args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._run, callback, args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Refuse: a thread would make the run depend on the machine.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("threads cannot be simulated: use Runtime.run_blocking")

    def unwind(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel these tasks, and any other, until they have ended, so that no coroutine is left unfinished."""
        for _ in range(UNWINDING_ROUNDS):
            left = [task for task in {*tasks, *asyncio.all_tasks(self)} if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self._steps_then = self._steps
            self.call_soon(self.stop)
            self.run_forever()

    def _run(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        owner = OWNER.get()
        self._steps += 1
        if owner is None:
            callback(*args)
        elif owner.admit(callback, args):
            try:
                callback(*args)
            except ProcessKilledError:
                return
            except Exception as error:
                owner.crashed(error)

    def _make_task(
        self,
        _loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(work, loop=self, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.began(task)
        return task

    def _stray_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not isinstance(error, ProcessKilledError):
            self.stray.append(error)
