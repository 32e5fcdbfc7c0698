"""A process of the virtual world, and the Runtime that its daemon sees.

When killed, it stops between two callbacks: nothing of it runs any more. Its tasks are kept, unfinished, until the
world is closed, because Python would run their `finally` blocks when collecting them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from hal.core.interfaces.directory import Directory
from hal.core.model.errors import HALError, NotFoundError, OverloadedError, TimedOutError, UnreachableError
from hal.runtime.call_watch import Unwatched
from hal.runtime.ends import frame_ends
from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity
from hal.runtime.interface import (
    CONNECT_TIMEOUT_MS,
    MAX_BLOCKING_CALLS,
    Address,
    AnyConversation,
    ByteStream,
    Connection,
    Credentials,
    Lane,
    Listener,
    Logger,
    OnConnect,
    OnStream,
    Process,
    Runtime,
    Timer,
)
from hal.runtime.script_end import ScriptEnd
from hal.runtime.virtual_directory import Holder
from hal.runtime.virtual_loop import OWNER, ProcessKilledError
from hal.wire.block_stream import BlockStream
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.roles import Role

if TYPE_CHECKING:
    from hal.runtime.virtual_world import VirtualHost, VirtualWorld

T = TypeVar("T")

Main = Callable[[Runtime], Awaitable[int | None]]

SHUTDOWN_MS: Final = 10_000
EXIT_FAULT: Final = 70
SIGKILL: Final = 9

_Kept = tuple[Callable[..., object], tuple[Any, ...]]


class VirtualProcess:
    """A simulated process, created by `VirtualWorld.start`; to its starter it is a `Process` of the interface."""

    def __init__(self, world: VirtualWorld, host: VirtualHost, name: str, main: Main, *, pid: int) -> None:
        self.world = world
        self.host = host
        self.name = name
        self.main = main
        self.pid = pid
        self.exit_code: int | None = None
        """None while it runs; minus the signal if it was killed."""
        self.steps = 0
        """How many of its callbacks have run."""
        self.paused = False
        self.context = Context()
        self.context.run(OWNER.set, self)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._kept: list[_Kept] = []
        self._waiters: list[asyncio.Future[int]] = []
        self._kill_at_step = -1
        self._pause_at_step = -1
        self._on_death: list[Callable[[], object]] = []
        self.holder = Holder()
        """What it holds of its host's directories."""
        self.runtime = VirtualRuntime(self)
        host.processes[pid] = self
        world.note(name, "start", f"pid {pid} on {host.name}")
        delay_s = world.network.draw_s(world.conditions.start_us)
        world.loop.call_at(world.loop.time() + delay_s, self._begin, context=self.context)

    # ── as its starter sees it ────────────────────────────────────────────────────────────────────────────────────

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.pid, self.host.boot_id)

    @property
    def running(self) -> bool:
        return self.exit_code is None

    async def wait(self, timeout_ms: int | None = None) -> int:
        if self.exit_code is None:
            waiter: asyncio.Future[int] = self.world.loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    return await waiter
            except TimeoutError:
                raise TimedOutError(f"process {self.pid} still runs after {timeout_ms} ms") from None
        return self.exit_code

    def kill(self, signal_number: int = SIGKILL) -> bool:
        """Send a signal: SIGKILL ends it at this very point, any other asks it to stop. False if it had ended."""
        if not self.running:
            return False
        if signal_number == SIGKILL:
            self._end(-SIGKILL)
        else:
            self.terminate()
        return True

    # ── what a simulation does to it ──────────────────────────────────────────────────────────────────────────────

    def kill_after(self, steps: int) -> None:
        """Kill it after this many more of its callbacks: between any two awaits, also between a blocking call's
        effect and its result."""
        self._kill_at_step = self.steps + steps

    def pause_after(self, steps: int) -> None:
        """Pause it after this many more of its callbacks, for example before a blocking call that it has requested."""
        self._pause_at_step = self.steps + steps

    def die_here(self) -> NoReturn:
        """Kill it in the middle of its own callback: for fakes that it calls (a journal, a spawner).

        Raises:
            ProcessKilledError: its code must not catch it; effects while unwinding are not undone.
        """
        self.kill()
        raise ProcessKilledError(self.name)

    def terminate(self) -> None:
        """Send SIGTERM: `stopping` is set; after `SHUTDOWN_MS` it is killed."""
        loop = self.world.loop
        loop.call_soon(self.runtime.stop, "SIGTERM", context=self.context)
        loop.call_at(loop.time() + SHUTDOWN_MS / 1000, self.kill, context=self.world.context)

    def pause(self) -> None:
        """Send SIGSTOP: nothing of it runs, its connections stay open."""
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT: what became due meanwhile runs now, in order."""
        self.paused, self._pause_at_step = False, -1
        self._replay()

    async def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine inside the process, like a request to it; returns its result.

        Raises:
            UnreachableError: the process ended before it answered; whether it acted is unknown.
        """
        answer: asyncio.Future[T] = self.world.loop.create_future()
        ended = asyncio.ensure_future(self.wait())

        async def serve() -> None:
            try:
                result = await work()
            except HALError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.world.loop.call_soon(self.runtime.spawn_task, serve(), "a request", context=self.context)
        try:
            await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            answered = answer.done() or not answer.cancel()  # nobody receives a later result
        if not answered:
            raise UnreachableError(f"{self.name} ended before it answered")
        return answer.result()

    def on_death(self, call: Callable[[], object]) -> None:
        """Call this, outside the process, once it has ended in any way: models what the kernel would clean up."""
        self._on_death.append(call)

    # ── as the loop sees it ───────────────────────────────────────────────────────────────────────────────────────

    def admit(self, call: Callable[..., object], args: tuple[Any, ...]) -> bool:
        if self.world.closing:
            return True
        if self.running and self.steps == self._pause_at_step:
            self._pause_at_step = -1
            self.pause()
        if self.running and not self.paused:
            if self.steps != self._kill_at_step:
                self.steps += 1
                return True
            self.kill()
        self._kept.append((call, args))
        return False

    def crashed(self, error: BaseException) -> None:
        self.fault("a callback failed", error)

    def began(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        # In the world's context: a dead process's tasks end when the world is closed.
        task.add_done_callback(self._ended_task, context=self.world.context)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def fault(self, reason: str, error: BaseException | None) -> None:
        """End the process because of its own fault; the world reports it."""
        if self.running and not self.world.closing:
            text = f"{self.name}: {reason}" + (f": {type(error).__name__}: {error}" if error else "")
            self.world.note(self.name, "fault", text)
            self.world.faults.append((text, error))
            self._end(EXIT_FAULT)

    def release(self) -> None:
        """Let what is unfinished run to its end, without effect, because the world is closing."""
        self._replay()

    def _begin(self) -> None:
        if self.world.closing:
            return
        self.world.loop.create_task(self._live(), name=f"main {self.name}")

    async def _live(self) -> None:
        try:
            code = int(await self.main(self.runtime) or 0)
        except HALError as error:
            self.runtime.log.error("ended with an error", code=error.code, reason=str(error))
            code = 1
        except Exception as error:
            self.fault("main failed", error)
            return
        if not self.world.closing:
            await self.runtime.close()
            self._end(code)

    def _end(self, code: int) -> None:
        if not self.running:
            return
        self.exit_code = code
        self.host.processes.pop(self.pid, None)
        self.host.dead.append(self)
        self.world.tasks.extend(self._tasks)
        self.world.note(self.name, "end", f"pid {self.pid} exit {code}")
        self.world.network.close_process(self)
        self.host.directories.end(self.holder)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(code)
        for call in self._on_death:
            call()

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _replay(self) -> None:
        kept, self._kept = self._kept, []
        for call, args in kept:
            self.world.loop.call_soon(call, *args, context=self.context)


class VirtualRuntime:
    """The Runtime of one virtual process."""

    def __init__(self, process: VirtualProcess) -> None:
        self._process = process
        self._world = process.world
        self._host = process.host
        self._loop = process.world.loop
        self._stopping = asyncio.Event()
        self._log = TracedLogger(process, {})
        self._random = self._world.rng(f"process {process.pid}")
        self._disk_random = self._world.rng(f"disk {process.pid}")
        self._lane_free_s: defaultdict[str, float] = defaultdict(float)
        self._lane_waiting: Counter[str] = Counter()
        self._background: dict[asyncio.Task[Any], None] = {}
        self._listeners: list[Listener] = []

    @property
    def name(self) -> str:
        return self._process.name

    @property
    def paths(self) -> Home:
        return self._host.home

    @property
    def log(self) -> Logger:
        return self._log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def boot_id(self) -> str:
        return self._host.boot_id

    @property
    def host(self) -> VirtualHost:
        """Beyond the interface, for assembling a simulation: the host, with its disk."""
        return self._host

    def blocked_calls(self, lane: str) -> int:
        """Beyond the interface: blocking calls that wait or run."""
        return self._lane_waiting[lane]

    def now_ms(self) -> int:
        return self._host.now_ms()

    def boot_ms(self) -> int:
        return self._host.boot_ms()

    def monotonic_ms(self) -> int:
        return self._host.boot_ms()

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    def watch(self, late: Callable[[float], None]) -> Unwatched:
        return Unwatched()

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000 / self._host.rate)

    def call_later(self, ms: int, call: Callable[[], object]) -> Timer:
        return self._loop.call_later(ms / 1000 / self._host.rate, call)

    def spawn_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._loop.create_task(work, name=f"{self._process.name}: {name}")
        self._background[task] = None
        task.add_done_callback(self._task_ended)
        return task

    async def run_blocking(self, call: Callable[[], T], lane: str = Lane.WRITER) -> T:
        if self._lane_waiting[lane] >= MAX_BLOCKING_CALLS:
            raise OverloadedError(f"{self._lane_waiting[lane]} blocking calls wait in the {lane} lane")
        self._lane_waiting[lane] += 1
        result: asyncio.Future[T] = self._loop.create_future()
        begin_s = max(self._loop.time(), self._lane_free_s[lane]) + self._disk_delay_s()
        end_s = begin_s + self._disk_delay_s()
        self._lane_free_s[lane] = end_s
        self._loop.call_at(begin_s, self._carry_out, call, lane, end_s, result)
        return await result

    @property
    def stopping(self) -> asyncio.Event:
        return self._stopping

    def stop(self, reason: str) -> None:
        if not self._stopping.is_set():
            self._log.info("stopping", reason=reason)
            self._stopping.set()

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        self._process.fault(reason, error)

    async def listen(
        self,
        address: Address,
        on_connect: OnConnect,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Listener:
        make, role = frame_ends(conversation), conversation.listener
        listener = self._world.network.listen(self._process, address, on_connect, credentials, make, role, joins=True)
        self._listeners.append(listener)
        self._world.note(self.name, "listen", str(address))
        return listener

    async def connect(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Connection:
        make, role = frame_ends(conversation), conversation.listener
        return await self._world.network.connect(self._process, address, timeout_ms, credentials, make, role)

    async def serve(
        self,
        address: Address,
        on_stream: OnStream,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> Listener:
        listener = self._world.network.listen(
            self._process, address, on_stream, credentials, BlockStream, role, joins=False
        )
        self._listeners.append(listener)
        self._world.note(self.name, "serve", str(address))
        return listener

    async def dial(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> ByteStream:
        return await self._world.network.connect(self._process, address, timeout_ms, credentials, BlockStream, role)

    def random(self) -> random.Random:
        return self._random

    def new_id(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def open_directory(self, path: Path) -> Directory:
        return self._host.directories.open(str(path), self._process.holder)

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | None = None,
    ) -> Process:
        return self._host.start_program(argv)

    async def run_script(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        timeout_ms: int,
        began: Callable[[ProcessIdentity], None] | None = None,
    ) -> ScriptEnd:
        script = self._host.scripts.get(argv[0])
        if script is None:
            raise NotFoundError(f"{argv[0]} cannot be started: there is no such program on {self._host.name}")
        takes_ms, ended = script(env)
        await self.sleep(min(takes_ms, timeout_ms))
        return ended if takes_ms <= timeout_ms else ScriptEnd(-9, ended.output, timed_out=True)

    async def ask_service(self, path: Path, line: bytes, *, timeout_ms: int, most: int) -> bytes:
        serve = self._host.services.get(path.name)
        if serve is None:
            raise UnreachableError(f"nobody serves {path}: there is no such socket on {self._host.name}")
        takes_ms, answer = serve(line)
        await self.sleep(min(takes_ms, timeout_ms))
        if takes_ms > timeout_ms:
            raise TimedOutError(f"{path} did not answer within {timeout_ms} ms")
        return answer[: most + 1]

    def end_script(self, process: ProcessIdentity) -> None:
        """Do nothing: scripts of a virtual process end with it."""

    async def close(self) -> None:
        """As the real runtime's: stop serving, cancel background tasks."""
        for listener in self._listeners:
            await listener.close()
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _carry_out(self, call: Callable[[], T], lane: str, end_s: float, result: asyncio.Future[T]) -> None:
        if self._world.closing:
            result.cancel()
            return
        try:
            value = call()
        except Exception as error:
            self._world.note(self.name, "blocking", f"{lane} raised {type(error).__name__}")
            self._loop.call_at(end_s, self._deliver, lane, result, result.set_exception, error)
        else:
            self._world.note(self.name, "blocking", str(lane))
            self._loop.call_at(end_s, self._deliver, lane, result, result.set_result, value)

    def _deliver(self, lane: str, result: asyncio.Future[T], settle: Callable[[Any], None], value: Any) -> None:
        self._lane_waiting[lane] -= 1
        if not result.done():
            settle(value)

    def _disk_delay_s(self) -> float:
        low_us, high_us = self._world.conditions.blocking_us
        delay_us = self._disk_random.randint(low_us, high_us)
        if self._disk_random.random() < self._world.conditions.stall_chance:
            delay_us *= 100
        return delay_us / 1_000_000

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._background.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"the task '{task.get_name()}' failed", error)


class TracedLogger:
    """A logger whose lines go to the world's trace."""

    def __init__(self, process: VirtualProcess, bound: Mapping[str, Any]) -> None:
        self._process = process
        self._bound = bound

    def debug(self, event: str, **values: Any) -> None:
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        self._write("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        self._write("error", event, values)

    def bind(self, **values: Any) -> Logger:
        return TracedLogger(self._process, {**self._bound, **values})

    def _write(self, level: str, event: str, values: Mapping[str, Any]) -> None:
        told = " ".join(f"{key}={value}" for key, value in {**self._bound, **values}.items() if key != "exc_info")
        self._process.world.note(self._process.name, level, f"{event} {told}".rstrip())
