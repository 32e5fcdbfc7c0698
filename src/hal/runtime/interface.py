"""The Runtime: everything that a shell (controller, agent, broker) may ask of the world outside it.

Two implementations: `real` (asyncio on uvloop, the kernel's clocks and sockets) and `virtual` (asyncio under virtual
time, deterministic for a seed). A shell is written against these Protocols and against asyncio's own primitives that
need no outside (Task, Queue, Event, Future, timeout, gather); it never imports time, random, socket, subprocess,
threading or os for an effect. All times are integers in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity
from hal.runtime.script_end import ScriptEnd
from hal.wire.connection import MAX_INCOMING_FRAMES, MAX_OUTGOING_BYTES
from hal.wire.frames import AnyFrame
from hal.wire.peer import CertifiedName, Peer

__all__ = [
    "CONNECT_TIMEOUT_MS",
    "MAX_BLOCKING_CALLS",
    "MAX_CONNECTIONS",
    "MAX_INCOMING_FRAMES",
    "MAX_OUTGOING_BYTES",
    "Address",
    "CertifiedName",
    "Connection",
    "Credentials",
    "Lane",
    "Listener",
    "Logger",
    "OnConnect",
    "Peer",
    "Process",
    "Runtime",
    "TcpAddress",
    "Timer",
    "UnixAddress",
]

T = TypeVar("T")

MAX_CONNECTIONS: Final = 20_000
"""Accepted connections of one listener; one more is told Goodbye."""
MAX_BLOCKING_CALLS: Final = 10_000
"""Calls that may wait in one lane of `run_blocking`; beyond it OverloadedError."""
CONNECT_TIMEOUT_MS: Final = 5_000


class UnixAddress(NamedTuple):
    """A Unix socket of this host."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


class TcpAddress(NamedTuple):
    """A TCP port; what crosses it is TLS 1.3, with the credentials of both ends."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp:{self.host}:{self.port}"


Address = UnixAddress | TcpAddress


class Credentials(NamedTuple):
    """What this side of a TCP connection shows, and whom it believes: paths of PEM files, read at each use."""

    authority: Path | None = None
    """The authority that the other end's certificate must be from. None, when dialling: whoever answers is
    believed, so nothing secret may be said."""
    certificate: Path | None = None
    """Its own certificate and private key, in one file; None, when dialling: it shows none."""


class Lane(StrEnum):
    """Which thread a blocking call runs on. Calls of one lane run in the order they were made."""

    WRITER = "writer"
    """The one thread that writes to the store."""
    READER = "reader"
    """The one thread that reads from the store for REST, on its own database connection."""
    FLUSH = "flush"
    """The one thread that waits for the disk, beside the writer."""
    DECODE = "decode"
    """The one thread that decodes and checks large bodies of requests, beside the loop."""
    LEASE = "lease"
    """The one thread that renews the leader's lease, beside the writer."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """The call will not happen; harmless when it has."""


class Watch(Protocol):
    """Watches one call at a time."""

    def begin(self) -> None:
        """A call begins."""

    def end(self) -> None:
        """It came back."""

    def close(self) -> None:
        """Look no more."""


class Connection(Protocol):
    """Frames to and from one other process. Used from the loop only."""

    @property
    def peer(self) -> Peer | None:
        """Who is there, as the kernel says; None for TCP."""

    @property
    def certified(self) -> CertifiedName | None:
        """Who is there, as its certificate says; None on a Unix socket, and for one that has shown none."""

    @property
    def label(self) -> str:
        """For logs: the address and a number."""

    @property
    def closed(self) -> bool:
        """Nothing can be sent any more (frames that came before may still be received)."""

    @property
    def close_reason(self) -> str:
        """Why it closed, for logs; '' while open."""

    @property
    def fault(self) -> str:
        """What the other end sent that is no frame, in words; it ended the connection. '' where it sent none."""

    def send_nowait(self, frame: AnyFrame) -> None:
        """Queue a frame; all frames queued in one turn of the loop leave in one write.

        Raises:
            OverloadedError: more than `MAX_OUTGOING_BYTES` wait already; the frame was not queued.
            UnreachableError: the connection is closed; the frame was not queued.
            FrameTooLongError: it is over the wire's limit; the frame was not queued.
        """

    async def send(self, frame: AnyFrame) -> None:
        """As `send_nowait`, but first wait while the other end does not read fast enough. Errors as there."""

    async def receive(self, timeout_ms: int | None = None) -> AnyFrame | None:
        """The next frame; None when the connection has closed and all that came before was received.

        One task at a time may wait. A malformed frame from the other end closes the connection (logged, and told to it
        with a Goodbye), so it shows here as None.

        Raises:
            TimedOutError: nothing came for `timeout_ms`; the connection is as it was.
        """

    def close(self) -> None:
        """Write what is queued, then close. Harmless when closed."""

    def abort(self) -> None:
        """Close at once; what is queued is dropped."""

    async def wait_closed(self) -> None:
        """Until nothing is left of it."""


OnConnect = Callable[[Connection], Awaitable[None]]
"""Serves one accepted connection; it is closed when this returns. A HALError that it raises is logged and told to the
other end with a Goodbye of its code; any other exception is logged as a fault and ends the connection only, for the
other end may have brought it about."""


class Listener(Protocol):
    """An address that is being served."""

    @property
    def address(self) -> Address: ...

    @property
    def connections(self) -> int:
        """How many are open."""

    def renewed(self) -> None:
        """Read the credentials again: connections from now on use them. Nothing on a Unix socket."""

    async def close(self) -> None:
        """Accept nothing more and close what was accepted."""


class Process(Protocol):
    """A process that was started. It goes on when the starter dies."""

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def running(self) -> bool: ...

    async def wait(self, timeout_ms: int | None = None) -> int:
        """Until it has ended; its exit code, or minus the signal that ended it.

        Raises:
            TimedOutError: it still runs after `timeout_ms`.
        """

    def kill(self, signal_number: int = 9) -> bool:
        """Signal it; False when it is gone already."""


class Logger(Protocol):
    """Structured log: an event in plain words and named values. Values under names like token or secret are hidden."""

    def debug(self, event: str, **values: Any) -> None: ...

    def info(self, event: str, **values: Any) -> None: ...

    def warning(self, event: str, **values: Any) -> None: ...

    def error(self, event: str, **values: Any) -> None: ...

    def exception(self, event: str, **values: Any) -> None:
        """An error together with the exception that is being handled."""

    def bind(self, **values: Any) -> Logger:
        """A logger that adds these values to every line."""


class Runtime(Protocol):
    """One process's door to the outside."""

    @property
    def name(self) -> str:
        """What this process is: `controller`, `agent-n1`; names its log and pid file."""

    @property
    def paths(self) -> Home:
        """The layout of HAL_HOME."""

    @property
    def log(self) -> Logger: ...

    @property
    def pid(self) -> int: ...

    @property
    def boot_id(self) -> str:
        """Of the host; another one after each boot."""

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def now_ms(self) -> int:
        """The wall clock, since 1970. It may jump either way: the controller keeps its own that does not go back."""

    def boot_ms(self) -> int:
        """CLOCK_BOOTTIME: since the host booted, suspended time included. Never goes back."""

    def monotonic_ms(self) -> int:
        """CLOCK_MONOTONIC: for spans. Never goes back; stands still while the host is suspended."""

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, fine enough to measure one call."""

    def watch(self, late: Callable[[float], None]) -> Watch:
        """What looks from another thread whether a call of the loop comes back; `late` is told there, after seconds."""

    async def sleep(self, ms: int) -> None:
        """Wait; 0 lets others run once."""

    def call_later(self, ms: int, call: Callable[[], object]) -> Timer:
        """Call a plain function in `ms` milliseconds. An exception in it fails the process."""

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def spawn_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine in the background; the runtime holds on to it.

        An exception that leaves it (other than its own cancellation) is logged and fails the process: a shell with a
        dead part must not go on as if nothing had happened. To have an error as a value, catch it inside, or use
        `asyncio.create_task` and await the task.
        """

    async def run_blocking(self, call: Callable[[], T], lane: Lane = Lane.WRITER) -> T:
        """Run a blocking call on the lane's own thread and give back what it returns or raises.

        Cancelling the caller does not stop a call that has begun: it runs to its end and its result is dropped.

        Raises:
            OverloadedError: `MAX_BLOCKING_CALLS` wait in this lane already.
        """

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the process was asked to end (SIGTERM, SIGINT, `stop`): `main` should return soon."""

    def stop(self, reason: str) -> None:
        """Ask this process to end, as SIGTERM does."""

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        """End this process with an error exit code, now: a fault was found."""

    # ── transport ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def listen(self, address: Address, on_connect: OnConnect, credentials: Credentials | None = None) -> Listener:
        """Serve an address.

        On a Unix socket, peers of another user (except root) are told Goodbye with code `denied`. On TCP, whoever shows
        a certificate of another authority is cut off; one that shows none is served, with `certified` None, but only
        briefly (`hal.wire.strangers`).

        Args:
            credentials: for TCP, and needed there: both files.
        Raises:
            ConflictError: another live process serves it, or it cannot be served here.
        """

    async def connect(
        self, address: Address, timeout_ms: int = CONNECT_TIMEOUT_MS, credentials: Credentials | None = None
    ) -> Connection:
        """Dial.

        Args:
            credentials: for TCP, and needed there.
        Raises:
            UnreachableError: nobody answers there, or what answers speaks no TLS 1.3.
            DeniedError: who answers is neither this user nor root; on TCP, no controller of that authority.
        """

    # ── the rest of the world ─────────────────────────────────────────────────────────────────────────────────────

    def random(self) -> random.Random:
        """The process's random numbers: seeded, the same object each time. Not for secrets."""

    def new_id(self) -> str:
        """32 hex digits that nobody else has or can guess: ids of traces and commits, tokens of attempts and joins."""

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | None = None,
    ) -> Process:
        """Start a process of its own session that outlives this one; stdout and stderr are appended to `output`.

        Args:
            argv: program and arguments; the program is looked up in PATH.
            env: its whole environment; this process's when None.
            cwd: working directory; `/` when None.
            output: file, or None for /dev/null.
        Raises:
            NotFoundError: there is no such program.
            DeniedError: it may not be run.
        """

    async def run_script(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        timeout_ms: int,
        began: Callable[[ProcessIdentity], None] | None = None,
    ) -> ScriptEnd:
        """Run a short program to its end; it is killed after `timeout_ms`, and when the caller is cancelled.

        Args:
            env: added to this process's environment.
            began: told which process it is: should this one be killed meanwhile, the next can end it.
        Raises:
            NotFoundError: there is no such program.
            DeniedError: it may not be run.
        """

    def end_script(self, process: ProcessIdentity) -> None:
        """Kill a program that an earlier process of this kind had run, should it still run."""
