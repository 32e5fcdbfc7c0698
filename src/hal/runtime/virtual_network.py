"""The virtual network: byte streams between virtual processes, with seeded delays, splits, cuts and partitions.

Bytes of one direction arrive in order. What a process wrote before it was killed still arrives, followed by the end of
the stream, as with a socket of the kernel. Between hosts, a partition holds everything back until it is healed, as TCP
would; a cut breaks connections at once.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from hal.core.model.errors import ConflictError, DeniedError, UnreachableError
from hal.runtime.ends import E, MakeEnd
from hal.runtime.interface import Address, Credentials, TcpAddress
from hal.runtime.unix_listener import report_fault, serve_connection
from hal.wire.connection import FrameConnection
from hal.wire.peer import CertifiedName, Peer
from hal.wire.roles import Role, dialler_refusal, listener_refusal
from hal.wire.transport_end import WRITE_HIGH_BYTES, TransportEnd

if TYPE_CHECKING:
    from hal.runtime.virtual_process import VirtualProcess
    from hal.runtime.virtual_world import VirtualHost, VirtualWorld


class Conditions(NamedTuple):
    """How the virtual network and disk behave. Delays are drawn each time, in microseconds, bounds included."""

    local_us: tuple[int, int] = (20, 400)
    """Through a socket of one host."""
    remote_us: tuple[int, int] = (100, 3_000)
    """Between hosts."""
    blocking_us: tuple[int, int] = (50, 3_000)
    """A blocking call: once before it takes effect and once more before its caller gets the result."""
    start_us: tuple[int, int] = (5_000, 80_000)
    """From starting a process to its first instruction."""
    stall_chance: float = 0.01
    """How often a delay is a hundred times as long."""
    split_chance: float = 0.1
    """How often bytes written together arrive in two parts."""
    again_chance: float = 0.0
    """How often, between hosts, earlier frames are repeated before the next."""


KEPT_WRITES: Final = 40
"""Writes between two hosts that may be repeated."""
MOST_AGAIN: Final = 4


class VirtualTransport(asyncio.Transport):
    """One end of a byte stream, owned by a process."""

    def __init__(self, network: VirtualNetwork, process: VirtualProcess, protocol: TransportEnd, label: str) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self._protocol = protocol
        self._label = label
        self._peer: VirtualTransport | None = None
        self._in_flight: deque[bytes | None] = deque()
        """On their way to this end, oldest first; None is the end of the stream."""
        self._due = 0
        """How many of these are due but not delivered (a paused reader, a partition)."""
        self._unread_bytes = 0
        self._last_arrival_s = 0.0
        self._reading = True
        self._writing_paused = False
        self._high_bytes = WRITE_HIGH_BYTES
        self._closed = False
        self._lost = False
        self._fresh = True
        """Nothing was written yet: the first write, a hello or its answer, is never repeated."""

    def join(self, peer: VirtualTransport) -> None:
        """Make these two the ends of one stream."""
        self._peer, peer._peer = peer, self

    @property
    def joined(self) -> bool:
        """Whether it has another end."""
        return self._peer is not None

    @property
    def hosts(self) -> frozenset[str]:
        other = self._peer.process.host.name if self._peer is not None else ""
        return frozenset({self.process.host.name, other})

    # ── asyncio.Transport ─────────────────────────────────────────────────────────────────────────────────────────

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closed

    def is_reading(self) -> bool:
        return self._reading and not self._closed

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._network.loop.call_soon(self.arrive, context=self.process.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = WRITE_HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._peer._unread_bytes if self._peer is not None else 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        peer = self._peer
        if self._closed or not data or peer is None:
            return
        raw = bytes(data)
        self._network.note(self.process.name, "write", f"{self._label} {len(raw)} {hash_of(raw)}")
        here, there = self.process.host.name, peer.process.host.name
        # Only whole frames can be repeated; a byte stream has none.
        framed = isinstance(self._protocol, FrameConnection)
        earlier = self._network.again(here, there, raw, first=self._fresh) if framed else []
        for whole in (*earlier, raw):
            for piece in self._network.split(whole):
                peer.expect(piece)
        self._fresh = False
        if peer._unread_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._peer is not None:
                self._peer.expect(None)
            self._network.loop.call_soon(self._lose, None, context=self.process.context)

    def abort(self) -> None:
        self.close()

    # ── what the network does ─────────────────────────────────────────────────────────────────────────────────────

    def expect(self, piece: bytes | None) -> None:
        """Queue bytes that are on their way here."""
        loop = self._network.loop
        self._in_flight.append(piece)
        self._unread_bytes += len(piece or b"")
        same_host = len(self.hosts) == 1
        delay_s = self._network.delay_s(same_host) + self._network.slowness_s(self._peer, self)
        self._last_arrival_s = max(self._last_arrival_s, loop.time() + delay_s)
        loop.call_at(self._last_arrival_s, self._one_more, context=self._network.context)

    def arrive(self) -> None:
        """Deliver what is due, as far as the reader reads and no partition holds it back."""
        while self._due and self._reading and not self._lost and not self._held_back():
            self._due -= 1
            piece = self._in_flight.popleft()
            if piece is None:
                self._protocol.eof_received()
                self.close()
            elif not self._closed:
                self._unread_bytes -= len(piece)
                self._protocol.data_received(piece)
                self._relieve_peer()
            else:
                self._unread_bytes -= len(piece)

    def break_off(self) -> None:
        """Break this connection by the network: this end is notified, and nothing on its way arrives."""
        self._closed = True
        self._in_flight.clear()
        self._due = 0
        self._network.loop.call_soon(
            self._lose, ConnectionResetError("the network broke the connection"), context=self.process.context
        )

    def die(self) -> None:
        """Close this end because its owner was killed, as the kernel would."""
        if not self._closed:
            self._closed = True
            if self._peer is not None:
                self._peer.expect(None)
        self._network.forget(self)

    def _held_back(self) -> bool:
        source = self._peer.process.host.name if self._peer is not None else ""
        return self._network.blocked(source, self.process.host.name)

    def _one_more(self) -> None:
        if self._in_flight:
            self._due += 1
            self._network.loop.call_soon(self.arrive, context=self.process.context)

    def _relieve_peer(self) -> None:
        peer = self._peer
        if peer is not None and peer._writing_paused and self._unread_bytes <= peer._high_bytes // 4:
            peer._writing_paused = False
            self._network.loop.call_soon(peer._protocol.resume_writing, context=peer.process.context)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._network.forget(self)
            self._protocol.connection_lost(error)


class VirtualListener(Generic[E]):
    """An address served by a virtual process."""

    def __init__(
        self,
        network: VirtualNetwork,
        process: VirtualProcess,
        address: Address,
        on_connect: Callable[[E], Awaitable[None]],
        credentials: Credentials | None,
        make: MakeEnd[E],
        role: Role,
        *,
        joins: bool,
    ) -> None:
        self.credentials = credentials
        self._joins = joins
        self._make = make
        self._role = role
        self._network = network
        self.process = process
        self._address = address
        self._on_connect = on_connect
        self._open: dict[E, None] = {}
        self._accepted = 0

    @property
    def address(self) -> Address:
        return self._address

    @property
    def connections(self) -> int:
        return len(self._open)

    def reload_credentials(self) -> None:
        """Do nothing: credentials are looked up at each connection."""

    async def close(self) -> None:
        self._network.unlisten(self)
        for connection in list(self._open):
            connection.close("this side stops serving")
        for connection in list(self._open):
            await connection.wait_closed()

    def accept(self, dialled: VirtualTransport, dialler: VirtualProcess, credentials: Credentials | None) -> None:
        """Create and serve the server's end, in the serving process's context."""
        if dialled.is_closing():
            return
        self._accepted += 1
        log = self.process.runtime.log
        connection = self._make(
            f"{address_name(self._address)}#{self._accepted}",
            on_closed=lambda gone: self._open.pop(gone, None),
            on_fault=lambda faulty, reason: report_fault(log, faulty, reason),
        )
        transport = VirtualTransport(self._network, self.process, connection, connection.label)
        dialled.join(transport)
        self._network.keep(transport)
        self._open[connection] = None
        if not isinstance(self._address, TcpAddress):
            connection.peer = Peer(dialler.pid, dialler.host.uid, dialler.host.uid)
        else:
            connection.certified = dialler.host.certified(credentials)
            connection.remote = dialler.host.name
        connection.connection_made(transport)
        refusal = ""
        if connection.peer is None:
            refusal = dialler_refusal(self._role, _role(connection.certified), joins=self._joins)
        if refusal:
            log.warning("refused a connection", connection=connection.label, reason=refusal)
            connection.refuse("denied", refusal)
            return
        work = serve_connection(connection, self._on_connect, log)
        self.process.runtime.spawn_task(work, f"serve {connection.label}")


class VirtualNetwork:
    """All listeners and streams of a world."""

    def __init__(self, world: VirtualWorld, rng: random.Random, conditions: Conditions) -> None:
        self.loop = world.loop
        self.context = world.context
        self.conditions = conditions
        self.note = world.note
        self._rng = rng
        self._listeners: dict[tuple[str, str], VirtualListener[Any]] = {}
        self._transports: dict[VirtualTransport, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._slow_s: dict[tuple[str, str], float] = {}
        self._sent_before: dict[tuple[str, str], deque[bytes]] = {}
        self._mixed: dict[str, str] = {}

    def listen(
        self,
        process: VirtualProcess,
        address: Address,
        on_connect: Callable[[E], Awaitable[None]],
        credentials: Credentials | None,
        make: MakeEnd[E],
        role: Role,
        *,
        joins: bool,
    ) -> VirtualListener[E]:
        """Serve an address.

        Args:
            joins: as for `dialler_refusal`.
        Raises:
            ConflictError: a live process of that host serves it.
        """
        key = self._key(process.host, address)
        if key in self._listeners:
            raise ConflictError(f"{address} is served by another process", hint="is HAL running already?")
        listener = VirtualListener(self, process, address, on_connect, credentials, make, role, joins=joins)
        self._listeners[key] = listener
        return listener

    def unlisten(self, listener: VirtualListener[Any]) -> None:
        """Free the address."""
        key = self._key(listener.process.host, listener.address)
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    async def connect(
        self,
        process: VirtualProcess,
        address: Address,
        timeout_ms: int,
        credentials: Credentials | None,
        make: MakeEnd[E],
        role: Role,
    ) -> E:
        """Connect to an address.

        Raises:
            UnreachableError: nobody serves it, or there is a partition in between.
            DeniedError: the server has no certificate, and one is required.
        """
        key = self._key(process.host, address)
        await asyncio.sleep(self.delay_s(key[0] == process.host.name))
        if self.parted(frozenset({process.host.name, key[0]})):
            await asyncio.sleep(timeout_ms / 1000)
            raise UnreachableError(f"{address} did not accept for {timeout_ms} ms")
        listener = self._listeners.get(key)
        if listener is None or not listener.process.running:
            raise UnreachableError(f"nobody serves {address}: connection refused", hint="is HAL running?")
        certified = listener.process.host.certified(listener.credentials)
        if certified is None and credentials is not None and credentials.authority is not None:
            raise DeniedError(f"{address} is not a {role} of this HAL: it has no certificate")
        refusal = "" if certified is None else listener_refusal(role, certified.role)
        if refusal and credentials is not None and credentials.authority is not None:
            raise DeniedError(f"{address}: {refusal}", hint="check the address")
        log = process.runtime.log
        connection = make(address_name(address), on_fault=lambda faulty, reason: report_fault(log, faulty, reason))
        transport = VirtualTransport(self, process, connection, connection.label)
        self.keep(transport)
        self.note(process.name, "connect", str(address))
        self.loop.call_soon(listener.accept, transport, process, credentials, context=listener.process.context)
        # The kernel accepts before the server does: bytes may be written at once, and wait for the server's end.
        transport.pause_reading()
        deadline_s = self.loop.time() + timeout_ms / 1000
        while not transport.joined:
            if not listener.process.running or self.loop.time() > deadline_s:
                transport.die()
                raise UnreachableError(f"{address} does not accept", hint="is HAL running?")
            await asyncio.sleep(self.delay_s(True))
        if not isinstance(address, TcpAddress):
            connection.peer = Peer(listener.process.pid, listener.process.host.uid, listener.process.host.uid)
        else:
            connection.certified = certified
        connection.connection_made(transport)
        transport.resume_reading()
        return connection

    def close_process(self, process: VirtualProcess) -> None:
        """Free the addresses of a dead process, and end its streams."""
        for listener in [one for one in self._listeners.values() if one.process is process]:
            self.unlisten(listener)
        for transport in [one for one in self._transports if one.process is process]:
            transport.die()

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────

    def partition(self, one: str, other: str) -> None:
        """Hold back everything between two hosts until `heal`."""
        self.block(one, other)
        self.block(other, one)

    def block(self, source: str, target: str) -> None:
        """Hold back everything from one host to another until `heal`; nobody can connect in either direction."""
        self._blocked.add((source, target))

    def slow(self, source: str, target: str, seconds: float) -> None:
        """Delay everything from one host to another by this much from now on."""
        self._slow_s[(source, target)] = seconds

    def heal(self, one: str, other: str) -> None:
        """Deliver what was held back, in order."""
        self._blocked -= {(one, other), (other, one)}
        for transport in list(self._transports):
            self.loop.call_soon(transport.arrive, context=transport.process.context)

    def cut(self, one: str, other: str) -> None:
        """Break every connection between two hosts (or within one, if both are the same)."""
        for transport in [t for t in self._transports if t.hosts == frozenset({one, other})]:
            transport.break_off()

    def mix(self, hosts: Sequence[str]) -> None:
        """Let frames of one of these hosts be repeated by another, and frames to one be repeated to another: frames
        of a former connection arrive late, when the other end is connected to somebody else."""
        self._mixed.update(dict.fromkeys(hosts, hosts[0]))

    def parted(self, hosts: frozenset[str]) -> bool:
        return any(hosts == {source, target} for source, target in self._blocked)

    def blocked(self, source: str, target: str) -> bool:
        """Whether this direction is held back."""
        return (source, target) in self._blocked

    def again(self, source: str, target: str, raw: bytes, *, first: bool) -> list[bytes]:
        """Choose what is repeated before these frames: whole frames of earlier connections, in any order."""
        if not self.conditions.again_chance or source == target or first:
            return []
        ends = self._mixed.get(source, source), self._mixed.get(target, target)
        before = self._sent_before.setdefault(ends, deque(maxlen=KEPT_WRITES))
        repeated = []
        if before and self._rng.random() < self.conditions.again_chance:
            repeated = self._rng.sample(list(before), self._rng.randint(1, min(MOST_AGAIN, len(before))))
        before.append(raw)
        return repeated

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def slowness_s(self, source: VirtualTransport | None, target: VirtualTransport) -> float:
        """The extra delay of the next bytes to that end."""
        if not self._slow_s or source is None:
            return 0.0
        return self._slow_s.get((source.process.host.name, target.process.host.name), 0.0)

    def delay_s(self, same_host: bool) -> float:
        """The delay of the next bytes."""
        return self.draw_s(self.conditions.local_us if same_host else self.conditions.remote_us)

    def draw_s(self, bounds_us: tuple[int, int]) -> float:
        """Draw a delay within the bounds; sometimes a hundred times as long."""
        delay_us = self._rng.randint(*bounds_us)
        if self._rng.random() < self.conditions.stall_chance:
            delay_us *= 100
        return delay_us / 1_000_000

    def split(self, data: bytes) -> list[bytes]:
        """Split data into the parts in which it arrives."""
        if len(data) < 2 or self._rng.random() >= self.conditions.split_chance:
            return [data]
        at = self._rng.randrange(1, len(data))
        return [data[:at], data[at:]]

    def keep(self, transport: VirtualTransport) -> None:
        self._transports[transport] = None

    def forget(self, transport: VirtualTransport) -> None:
        self._transports.pop(transport, None)

    def _key(self, host: VirtualHost, address: Address) -> tuple[str, str]:
        if isinstance(address, TcpAddress):
            return address.host, str(address)
        return host.name, str(address)


def address_name(address: Address) -> str:
    """For labels: without directories, which may differ from run to run."""
    return str(address) if isinstance(address, TcpAddress) else address.path.name


def _role(certified: CertifiedName | None) -> str | None:
    return None if certified is None else certified.role


def hash_of(data: bytes) -> str:
    """A short checksum for traces."""
    import zlib

    return f"{zlib.crc32(data):08x}"
