"""The keeper's socket: one agent at a time, checked by peer credentials; frames in, frames out, bounded."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.daemons.agent.keeper.watch import Watcher
from hal.runtime.sockets import bind_unix, is_trusted_peer, peer_of, unlink_unix
from hal.wire.codec import FrameDecoder, encode
from hal.wire.errors import FrameTooLongError, MalformedFrameError
from hal.wire.frames.agent_keeper import AGENT_KEEPER, AgentKeeperFrame
from hal.wire.frames.hello import Goodbye, Hello

READ_BYTES: Final = 1 << 16
"""Bytes read at once; a larger buffer would be mapped and unmapped for each message, however small it is."""
MAX_OUTGOING_BYTES: Final = 32 << 20
"""An agent that leaves more unread is disconnected; it reconnects."""
MAX_FRAMES_PER_TURN: Final = 1_000
MAX_GREETING: Final = 8
"""Connections that have not sent a hello yet; one more replaces the oldest."""


class AgentConnection:
    """One accepted connection."""

    def __init__(self, accepted: socket.socket, watcher: Watcher, readable: Callable[[AgentConnection], None]) -> None:
        accepted.setblocking(False)
        self.frames: list[AgentKeeperFrame] = []
        self.open = True
        self._socket = accepted
        self._watcher = watcher
        self._decoder = FrameDecoder(AGENT_KEEPER)
        self._outgoing = bytearray()
        self._readable = readable
        self._watch(write=False)

    def send(self, frames: list[AgentKeeperFrame]) -> None:
        """Queue and write; closes a connection whose other end does not read."""
        for frame in frames:
            with contextlib.suppress(FrameTooLongError):  # the core creates no such frame; a log chunk is bounded
                self._outgoing += encode(frame)
        self.flush()
        if len(self._outgoing) > MAX_OUTGOING_BYTES:
            self.close()

    def flush(self) -> None:
        try:
            while self._outgoing and self.open:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            self._watch(write=True)
            return
        except ConnectionError:
            self.close()
            return
        if self.open:
            self._watch(write=False)

    def close(self) -> None:
        if self.open:
            self.open = False
            self._watcher.unwatch(self._socket.fileno())
            self._socket.close()

    def _watch(self, *, write: bool) -> None:
        self._watcher.watch(self._socket.fileno(), self._ready, write=write)

    def _ready(self) -> None:
        if len(self.frames) >= MAX_FRAMES_PER_TURN:
            return  # what was read comes first
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            data = None
        except ConnectionError:
            data = b""
        if data is None:
            self.flush()
            return
        if not data:
            self.close()
        else:
            try:
                self.frames += self._decoder.feed(data)
            except MalformedFrameError as error:
                self.frames += error.frames
                self.send([Goodbye(code=error.code, reason=error.message)])
                self.close()
            self.flush()
        self._readable(self)


class AgentLink:
    """The listening socket and the connected agent."""

    def __init__(self, path: Path, watcher: Watcher) -> None:
        """Serve the path.

        Raises:
            ConflictError: a live process serves it.
        """
        self._path = path
        self._watcher = watcher
        self._listener = bind_unix(path)
        self._inode = os.lstat(path).st_ino
        self._greeting: list[AgentConnection] = []
        self._agent: AgentConnection | None = None
        self._replaced = False
        watcher.watch(self._listener.fileno(), self._accept)

    def take(self) -> tuple[bool, list[AgentKeeperFrame]]:
        """Return whether the former agent has disconnected, and the frames since then (a new agent's begin with its
        hello)."""
        gone, self._replaced = self._replaced, False
        if self._agent is None:
            return gone, []
        frames = self._agent.frames[:MAX_FRAMES_PER_TURN]
        del self._agent.frames[:MAX_FRAMES_PER_TURN]
        if not self._agent.open and not self._agent.frames:
            self._agent = None
            self._replaced = True
        return gone, frames

    @property
    def pending(self) -> bool:
        """Whether `take` has more to return."""
        return self._replaced or (self._agent is not None and bool(self._agent.frames or not self._agent.open))

    def send(self, frames: list[AgentKeeperFrame]) -> None:
        if frames and self._agent is not None and self._agent.open:
            self._agent.send(frames)

    def close(self) -> None:
        unlink_unix(self._path, self._inode)
        self._watcher.unwatch(self._listener.fileno())
        self._listener.close()
        for connection in (*self._greeting, self._agent):
            if connection is not None:
                connection.close()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if not is_trusted_peer(peer_of(accepted.fileno())):
            refusal = encode(
                Goodbye(code="denied", reason="only the user that runs this keeper, and root, may connect")
            )
            with contextlib.suppress(OSError):
                accepted.send(refusal)
            accepted.close()
            return
        while len(self._greeting) >= MAX_GREETING:
            self._greeting.pop(0).close()
        self._greeting.append(AgentConnection(accepted, self._watcher, self._readable))

    def _readable(self, connection: AgentConnection) -> None:
        if connection not in self._greeting:
            return
        if connection.frames:
            self._greeting.remove(connection)
            if not isinstance(connection.frames[0], Hello):
                connection.send([Goodbye(code="malformed-frame", reason="the first frame must be a hello")])
                connection.close()
                return
            if self._agent is not None:
                self._agent.send([Goodbye(code="replaced", reason="another agent has connected")])
                self._agent.close()
                self._replaced = True
            self._agent = connection
        elif not connection.open:
            self._greeting.remove(connection)
