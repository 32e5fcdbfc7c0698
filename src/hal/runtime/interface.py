"""The Runtime: everything that a daemon (controller, agent, broker) may ask of the outside.

Two implementations: `real` (asyncio on uvloop, the kernel's clocks and sockets) and `virtual` (asyncio under virtual
time, deterministic for a seed). Daemons are written against these Protocols and against the asyncio primitives that
need no outside (Task, Queue, Event, Future, timeout, gather); they never import time, random, socket, subprocess,
threading or os for an effect. All times are integers in milliseconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from hal.core.interfaces.directory import Data, Directory
from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity
from hal.runtime.script_end import ScriptEnd
from hal.wire.block_stream import MAX_BLOCK_BYTES
from hal.wire.connection import MAX_INCOMING_FRAMES, MAX_OUTGOING_BYTES
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.peer import CertifiedName, Peer
from hal.wire.roles import Role

__all__ = [
    "CONNECT_TIMEOUT_MS",
    "MAX_BLOCKING_CALLS",
    "MAX_CONNECTIONS",
    "MAX_INCOMING_FRAMES",
    "MAX_OUTGOING_BYTES",
    "Address",
    "AnyConversation",
    "ByteStream",
    "CertifiedName",
    "Connection",
    "Credentials",
    "Lane",
    "Listener",
    "Logger",
    "OnConnect",
    "OnStream",
    "Peer",
    "Process",
    "Runtime",
    "TcpAddress",
    "Timer",
    "UnixAddress",
]

T = TypeVar("T")

MAX_CONNECTIONS: Final = 20_000
"""Accepted connections of one listener; any further connection is closed with a Goodbye."""
MAX_BLOCKING_CALLS: Final = 10_000
"""Calls that may wait in one lane of `run_blocking`; beyond that, OverloadedError."""
CONNECT_TIMEOUT_MS: Final = 5_000


class UnixAddress(NamedTuple):
    """A Unix socket of this host."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


class TcpAddress(NamedTuple):
    """A TCP port; the connection is TLS 1.3, with the credentials of both ends."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp:{self.host}:{self.port}"


Address = UnixAddress | TcpAddress


class Credentials(NamedTuple):
    """What this side of a TCP connection presents, and whom it trusts: paths of PEM files, read at each use."""

    authority: Path | None = None
    """The authority that must have signed the other end's certificate. None, when connecting: any server is trusted,
    so nothing secret may be sent."""
    certificate: Path | None = None
    """Its own certificate and private key, in one file; None, when connecting: it presents none."""


class Lane(StrEnum):
    """The thread on which a blocking call runs. Calls of one lane run in the order in which they were made."""

    WRITER = "writer"
    """The one thread that writes to the store."""
    READER = "reader"
    """The one thread that reads from the store for REST, on its own database connection."""
    FLUSH = "flush"
    """The one thread that waits for the disk, beside the writer."""
    DECODE = "decode"
    """The one thread that decodes and checks large request bodies, beside the loop."""
    LEASE = "lease"
    """The one thread that renews the leader's lease, beside the writer."""
    FILES = "files"
    """The one thread that keeps the files of jobs, beside the store's."""
    MAIL = "mail"
    """The one thread that sends mail."""
    WEBHOOK = "webhook"
    """The one thread that posts to webhooks, which may be slow."""
    NAMES = "names"
    """The one thread that asks the machine's name service about users, which may take as long as a directory does."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel the call; harmless if it has already run."""


class Watch(Protocol):
    """Watches one call at a time for taking too long."""

    def begin(self) -> None:
        """Start watching a call."""

    def end(self) -> None:
        """Stop watching: the call returned."""

    def close(self) -> None:
        """Stop the watch for good."""


class Connection(Protocol):
    """Frames to and from one other process. Used from the loop only."""

    @property
    def peer(self) -> Peer | None:
        """The other process, as the kernel reports it; None for TCP."""

    @property
    def certified(self) -> CertifiedName | None:
        """The name in the other end's certificate; None on a Unix socket, and if it presented none."""

    @property
    def remote(self) -> str:
        """The address of whoever dialled over TCP, as this host sees it; '' on a Unix socket and at the dialler."""

    @property
    def label(self) -> str:
        """For logs: the address and a number."""

    @property
    def closed(self) -> bool:
        """Nothing more can be sent (frames that arrived before may still be received)."""

    @property
    def close_reason(self) -> str:
        """Why it closed, for logs; '' while open."""

    @property
    def fault(self) -> str:
        """A description of what the other end sent that is not a frame, which ended the connection; '' if it did
        not."""

    @property
    def outgoing_bytes(self) -> int:
        """Bytes that wait to be written."""

    @property
    def received_bytes(self) -> int:
        """Bytes that have arrived since it was opened; of frames that are not complete, too."""

    async def wait_writable(self) -> None:
        """Wait while the other end does not read fast enough, until it does or the connection is closed."""

    def send_nowait(self, frame: Frame) -> None:
        """Queue a frame; all frames queued in one turn of the loop leave in one write.

        Raises:
            OverloadedError: more than `MAX_OUTGOING_BYTES` are already queued; the frame was not queued.
            UnreachableError: the connection is closed; the frame was not queued.
            FrameTooLongError: it exceeds the wire's limit; the frame was not queued.
        """

    async def send(self, frame: Frame) -> None:
        """As `send_nowait`, but first wait while the other end does not read fast enough. Raises the same errors."""

    async def receive(self, timeout_ms: int | None = None) -> Frame | None:
        """Return the next frame; None when the connection has closed and everything before was received.

        One task at a time may wait. A malformed frame from the other end closes the connection (it is logged, and
        reported to the other end with a Goodbye), so it appears here as None.

        Raises:
            TimedOutError: nothing arrived for `timeout_ms`; the connection is unchanged.
        """

    def close(self) -> None:
        """Write what is queued, then close. Harmless if closed."""

    def abort(self) -> None:
        """Close at once; what is queued is dropped."""

    async def wait_closed(self) -> None:
        """Wait until the connection is fully closed."""


AnyConversation = Conversation[Any]

OnConnect = Callable[[Connection], Awaitable[None]]
"""Serves one accepted connection; it is closed when this returns. A HALError that it raises is logged and sent to
the other end in a Goodbye with its code; any other exception is logged as a fault and ends only this connection,
because the other end may have caused it."""


class ByteStream(Protocol):
    """Bytes to and from one other process, on a connection of their own. Used from the loop only.

    Each direction ends by itself (`end`), and what a direction's reader does not read, its writer cannot write: about 2
    MiB wait in between. A connection that breaks is never taken for an end.
    """

    @property
    def peer(self) -> Peer | None:
        """The other process, as the kernel reports it; None for TCP."""

    @property
    def certified(self) -> CertifiedName | None:
        """The name in the other end's certificate; None on a Unix socket."""

    @property
    def label(self) -> str:
        """For logs: the address and a number."""

    @property
    def closed(self) -> bool:
        """Nothing more can be written (bytes that arrived before may still be read)."""

    @property
    def close_reason(self) -> str:
        """Why it closed, for logs; '' while open."""

    async def read(self, limit: int = MAX_BLOCK_BYTES, timeout_ms: int | None = None) -> bytes:
        """Return the next bytes, at least one and at most `limit`; b'' when the other end has ended its direction.

        One task at a time may read.

        Raises:
            UnreachableError: the connection broke before the other end had ended.
            HALError: the other end gave up, with the error that its server raised.
            TimedOutError: nothing arrived for `timeout_ms`; the stream is unchanged.
        """

    async def write(self, data: Data, timeout_ms: int | None = None) -> None:
        """Write all of it, waiting while the other end does not read. One task at a time may write.

        Raises:
            UnreachableError: the stream is closed or broke, or this direction has ended.
            HALError: the other end gave up, as with `read`.
            TimedOutError: the other end read nothing for `timeout_ms`; a part may have been written.
        """

    def end(self) -> None:
        """End this direction; the other one goes on. Harmless if ended. When both have ended, the stream closes."""

    def close(self) -> None:
        """End this direction and close, once what was written is sent; what arrives is dropped. Harmless if closed."""

    def abort(self) -> None:
        """Break the stream at once."""

    async def wait_closed(self) -> None:
        """Wait until the connection is fully closed."""


OnStream = Callable[[ByteStream], Awaitable[None]]
"""Serves one accepted stream; errors as for `OnConnect`. The stream is closed when it returns."""


class Listener(Protocol):
    """An address that is being served."""

    @property
    def address(self) -> Address: ...

    @property
    def connections(self) -> int:
        """How many connections are open."""

    def reload_credentials(self) -> None:
        """Read the credentials again; later connections use them. Does nothing on a Unix socket."""

    async def close(self) -> None:
        """Stop accepting, and close what was accepted."""


class Process(Protocol):
    """A process that was started. It outlives its starter."""

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def running(self) -> bool: ...

    async def wait(self, timeout_ms: int | None = None) -> int:
        """Wait for its end; returns its exit code, or minus the signal that ended it.

        Raises:
            TimedOutError: it still runs after `timeout_ms`.
        """

    def kill(self, signal_number: int = 9) -> bool:
        """Send it a signal; False if it has already ended."""


class Logger(Protocol):
    """Structured log: an event in plain words and named values. Values whose names suggest a secret (token,
    password) are hidden."""

    def debug(self, event: str, **values: Any) -> None: ...

    def info(self, event: str, **values: Any) -> None: ...

    def warning(self, event: str, **values: Any) -> None: ...

    def error(self, event: str, **values: Any) -> None: ...

    def exception(self, event: str, **values: Any) -> None:
        """Log an error together with the exception that is being handled."""

    def bind(self, **values: Any) -> Logger:
        """Return a logger that adds these values to every line."""


class Runtime(Protocol):
    """One process's access to the outside."""

    @property
    def name(self) -> str:
        """The name of this process: `controller`, `agent-n1`; used for its log and pid file."""

    @property
    def paths(self) -> Home:
        """The layout of HAL_HOME."""

    @property
    def log(self) -> Logger: ...

    @property
    def pid(self) -> int: ...

    @property
    def boot_id(self) -> str:
        """Of the host; it changes with each boot."""

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def now_ms(self) -> int:
        """The wall clock, since 1970. It may jump either way; the controller derives a clock that never goes back."""

    def boot_ms(self) -> int:
        """CLOCK_BOOTTIME: since the host booted, including suspended time. Never goes back."""

    def monotonic_ms(self) -> int:
        """CLOCK_MONOTONIC: for durations. Never goes back; stands still while the host is suspended."""

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, precise enough to measure one call."""

    def watch(self, late: Callable[[float], None]) -> Watch:
        """Return a watch that checks from another thread whether a call of the loop returns; it calls `late` there
        with the seconds."""

    async def sleep(self, ms: int) -> None:
        """Wait; 0 lets other tasks run once."""

    def call_later(self, ms: int, call: Callable[[], object]) -> Timer:
        """Call a function in `ms` milliseconds. An exception in it fails the process."""

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def spawn_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine in the background; the runtime keeps a reference to it.

        An exception that leaves it (other than its own cancellation) is logged and fails the process: a daemon with a
        dead part must not continue as if nothing had happened. To get an error as a value, catch it inside, or use
        `asyncio.create_task` and await the task.
        """

    async def run_blocking(self, call: Callable[[], T], lane: str = Lane.WRITER) -> T:
        """Run a blocking call on the lane's own thread; returns or raises what it does.

        Args:
            lane: one of `Lane`, or a name of the caller's own, of which a process has few: each keeps its thread.

        Cancelling the caller does not stop a call that has begun: it runs to its end and its result is dropped.

        Raises:
            OverloadedError: `MAX_BLOCKING_CALLS` already wait in this lane.
        """

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the process was asked to stop (SIGTERM, SIGINT, `stop`): `main` should return soon."""

    def stop(self, reason: str) -> None:
        """Ask this process to stop, as SIGTERM does."""

    def fail(self, reason: str, error: BaseException | None = None) -> None:
        """End this process now, with an error exit code, because a fault was found."""

    # ── transport ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def listen(
        self,
        address: Address,
        on_connect: OnConnect,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Listener:
        """Serve an address.

        On a Unix socket, peers of another user (except root) receive a Goodbye with code `denied`. On TCP, a peer with
        a certificate of another authority is disconnected, and one whose role may not dial the conversation's listener
        (`hal.wire.roles`) is refused; a controller serves one without a certificate, with `certified` None, but only
        briefly (`hal.wire.strangers`).

        Args:
            credentials: required for TCP, both files.
            conversation: the frames that peers may send; any other ends the connection.
        Raises:
            ConflictError: another live process serves it, or it cannot be served here.
        """

    async def connect(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        conversation: AnyConversation = CONTROLLER_AGENT,
    ) -> Connection:
        """Connect to an address.

        Args:
            credentials: required for TCP.
            conversation: the frames that the server may send; any other ends the connection.
        Raises:
            UnreachableError: nobody answers there, or the server does not speak TLS 1.3.
            DeniedError: the server is neither this user nor root; on TCP, not of that authority, or not of the role of
                the conversation's listener.
        """

    async def serve(
        self,
        address: Address,
        on_stream: OnStream,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> Listener:
        """Serve an address with byte streams.

        Who may connect: as for `listen`, by the role of this process. Raises: as `listen`.

        Args:
            credentials: required for TCP, both files.
            role: of this process; its certificate must be of that role.
        """

    async def dial(
        self,
        address: Address,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        credentials: Credentials | None = None,
        role: Role = Role.SERVICE,
    ) -> ByteStream:
        """Open a byte stream to an address.

        Args:
            credentials: required for TCP.
            role: of the process that serves it; any other is refused.
        Raises: as `connect`.
        """

    # ── the rest of the world ─────────────────────────────────────────────────────────────────────────────────────

    def random(self) -> random.Random:
        """The process's random numbers: seeded, the same object each time. Not for secrets."""

    def new_id(self) -> str:
        """32 hex digits, unique and unguessable: ids of traces and commits, tokens of attempts and joins."""

    def open_directory(self, path: Path) -> Directory:
        """Open a directory that belongs to this user and is closed to everybody else; created if missing. Calls on it
        block: make them in `run_blocking`.

        Raises:
            NotFoundError: its parent does not exist.
            DeniedError: something else is there, or others may use it.
        """

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | None = None,
    ) -> Process:
        """Start a process in a session of its own that outlives this one; stdout and stderr are appended to
        `output`.

        Args:
            argv: program and arguments; the program is looked up in PATH.
            env: its whole environment; this process's if None.
            cwd: working directory; `/` if None.
            output: file, or None for /dev/null.
        Raises:
            NotFoundError: there is no such program.
            DeniedError: it may not be executed.
        """

    async def run_script(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        timeout_ms: int,
        began: Callable[[ProcessIdentity], None] | None = None,
    ) -> ScriptEnd:
        """Run a short program to its end; it is killed after `timeout_ms`, and if the caller is cancelled.

        Args:
            env: added to this process's environment.
            began: called with the started process, so that a successor can kill it if this process dies meanwhile.
        Raises:
            NotFoundError: there is no such program.
            DeniedError: it may not be executed.
        """

    async def ask_service(self, path: Path, line: bytes, *, timeout_ms: int, most: int) -> bytes:
        """Send a line to a service on a Unix socket of this host; returns its answer with its newline.

        The connection is closed with the answer, and if the caller is cancelled.

        Args:
            most: bytes that the answer may have; of a longer one, one byte more than that is returned.
        Raises:
            UnreachableError: nobody serves the socket, or the connection broke.
            TimedOutError: no whole line within the time.
            DeniedError: socket, directory or server belong neither to this user nor to root, or others may replace
                the socket.
        """

    def end_script(self, process: ProcessIdentity) -> None:
        """Kill a program that an earlier instance of this daemon had started, if it still runs."""
