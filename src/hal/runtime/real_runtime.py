"""The real Runtime: uvloop, the kernel's clocks, Unix sockets, TLS, threads for blocking calls, detached processes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hal.core.interfaces.directory import Directory
from hal.core.model.errors import InternalError
from hal.runtime.call_watch import CallWatch
from hal.runtime.detached_process import start_detached
from hal.runtime.ends import E, MakeEnd, frame_ends
from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity, boot_id
from hal.runtime.interface import (
    CONNECT_TIMEOUT_MS,
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
    Timer,
    UnixAddress,
)
from hal.runtime.lanes import BlockingLanes
from hal.runtime.line_budget import BudgetedLog, BudgetedLogs
from hal.runtime.real_directory import open_private_directory
from hal.runtime.script import end_script, run_script
from hal.runtime.script_end import ScriptEnd
from hal.runtime.service_socket import ask_service
from hal.runtime.started_process import StartedProcess
from hal.runtime.tls_listener import TlsListener, dial_tls
from hal.runtime.unix_listener import UnixListener, dial_unix, serve_connection, source_of
from hal.wire.block_stream import BlockStream
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.roles import Role

T = TypeVar("T")


class RealRuntime:
    """One operating-system process's Runtime, created inside its running loop; `hal.runtime.process.run` does
    everything.

    Args:
        name: the name of this process, for logs.
        paths: the home that it works in.
        log: its log.
        seed: of its random numbers; the kernel's if None.
    """

    def __init__(self, name: str, paths: Home, log: Logger, *, seed: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._paths = paths
        self._log = log
        self._broken = BudgetedLog(log, self.monotonic_ms)
        self._random = random.Random(os.urandom(16) if seed is None else seed)
        self._boot_id = boot_id()
        self._stopping = asyncio.Event()
        self._failed = self._loop.create_future()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._lanes = BlockingLanes()
        self._listeners: dict[Listener, None] = {}
        self._loop.set_exception_handler(self._loop_fault)

    @property
    def name(self) -> str:
        return self._name

    @property
    def paths(self) -> Home:
        return self._paths

    @property
    def log(self) -> Logger:
        return self._log

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def watch(self, late: Callable[[float], None]) -> CallWatch:
        return CallWatch(late)

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    def call_later(self, ms: int, call: Callable[[], object]) -> Timer:
        return self._loop.call_later(ms / 1000, call)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def spawn_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    async def run_blocking(self, call: Callable[[], T], lane: str = Lane.WRITER) -> T:
        return await self._lanes.run(call, lane)

    @property
    def stopping(self) -> asyncio.Event:
        return self._stopping

    def stop(self, reason: str) -> None:
        if not self._stopping.is_set():
            self._log.info("stopping", reason=reason)
            self._stopping.set()

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        self._log.error(reason, exc_info=error)
        if not self._failed.done():
            self._failed.set_result(f"{reason}: {type(error).__name__}: {error}" if error else reason)

    @property
    def failed(self) -> asyncio.Future[str]:
        """Done, with the reason, once `fail` was called."""
        return self._failed

    # ── transport ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def listen(
        self,
        address: Address,
        on_connect: OnConnect,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Listener:
        make, role = frame_ends(conversation), conversation.listener
        return await self._serve(address, on_connect, credentials, make, role, joins=True)

    async def connect(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Connection:
        if isinstance(address, UnixAddress):
            return await dial_unix(address.path, timeout_ms, self._log, frame_ends(conversation))
        make, role = frame_ends(conversation), conversation.listener
        return await dial_tls(address, _needed(credentials), timeout_ms, self._log, make, role)

    async def serve(
        self,
        address: Address,
        on_stream: OnStream,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> Listener:
        return await self._serve(address, on_stream, credentials, BlockStream, role, joins=False)

    async def dial(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> ByteStream:
        if isinstance(address, UnixAddress):
            return await dial_unix(address.path, timeout_ms, self._log, BlockStream)
        return await dial_tls(address, _needed(credentials), timeout_ms, self._log, BlockStream, role)

    async def _serve(
        self,
        address: Address,
        on_connect: Callable[[E], Awaitable[None]],
        credentials: Credentials | None,
        make: MakeEnd[E],
        role: Role,
        *,
        joins: bool,
    ) -> Listener:
        logs = BudgetedLogs(self._log, self.monotonic_ms)

        def serve(connection: E) -> None:
            work = serve_connection(connection, on_connect, logs.of(source_of(connection)))
            self.spawn_task(work, f"serve {connection.label}")

        listener: UnixListener[E] | TlsListener[E]
        if isinstance(address, UnixAddress):
            listener = UnixListener(address, serve, self._log, make)
        else:
            listener = TlsListener(address, _needed(credentials), serve, self._log, make, role, joins=joins)
        await listener.start()
        self._listeners[listener] = None
        return listener

    # ── the rest of the world ─────────────────────────────────────────────────────────────────────────────────────

    def random(self) -> random.Random:
        return self._random

    def new_id(self) -> str:
        return os.urandom(16).hex()

    def open_directory(self, path: Path) -> Directory:
        return open_private_directory(path)

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | None = None,
    ) -> Process:
        started = start_detached(argv, env=env, cwd=cwd, output=output)
        return StartedProcess(started)

    async def run_script(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        timeout_ms: int,
        began: Callable[[ProcessIdentity], None] | None = None,
    ) -> ScriptEnd:
        return await run_script(argv, env=env, timeout_ms=timeout_ms, began=began)

    async def ask_service(self, path: Path, line: bytes, *, timeout_ms: int, most: int) -> bytes:
        return await ask_service(path, line, timeout_ms=timeout_ms, most=most)

    def end_script(self, process: ProcessIdentity) -> None:
        end_script(process)

    async def close(self) -> None:
        """Stop serving, cancel background tasks, and end the threads."""
        for listener in list(self._listeners):
            await listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lanes.close()

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"the task '{task.get_name()}' failed", error)

    def _loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "transport" in context or ("protocol" in context and isinstance(error, OSError)):
            # The kernel reported an error on one connection; its user sees it closed.
            self._broken.warning("a connection broke", reason=context["message"], error=str(error))
        else:
            self.fail(context["message"], error)


def _needed(credentials: Credentials | None) -> Credentials:
    if credentials is None:
        raise InternalError("TCP requires credentials")
    return credentials
