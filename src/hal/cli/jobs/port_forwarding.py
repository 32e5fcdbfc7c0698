"""A port of this machine that leads into a step: each connection has a stream of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from hal.runtime.stream_link import Link, Watched
from hal.wire.step_streams import DATA, END, FAIL, HEAD, OUT, Backlog, MalformedStreamError, message

if TYPE_CHECKING:
    from hal.client.step_streams import StepStream
    from hal.client.transport.http import Connections

MAX_CONNECTIONS: Final = 48
"""Open at once; further ones wait."""
MAX_BACKLOG_BYTES: Final = 1 << 20
LOOPBACK: Final = "127.0.0.1"
LOOK_S: Final = 5.0
"""How often an idle forwarding asks whether its job is still there."""
ENDED: Final = frozenset({"succeeded", "failed", "timed-out", "cancelled"})


class Forwarding:
    """See the module."""

    def __init__(self, connections: Connections, job: int, port: int, **where: Any) -> None:
        """Args:
        port: of the step.
        where: task, and rank or node.
        """
        from hal.client.step_streams import StreamDialler

        self._connections, self._dialler = connections, StreamDialler(connections)
        self._job, self._port, self._where = job, port, where
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._listener: socket.socket | None = None

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._listener is not None:
            self._listener.close()

    def check(self, *, runs: bool = False) -> None:
        """Find out whether the job has not ended.

        Args:
            runs: it must be running.
        Raises:
            ConflictError: it has, or it is not.
            HALError: the caller may not know, or HAL cannot be reached.
        """
        import json

        from hal.client.transport.exchange import Request
        from hal.core.model.errors import ConflictError

        answer = self._connections.send(Request("GET", f"/v1/jobs/{self._job}"))
        state = str(json.loads(answer.body).get("state", ""))
        if state in ENDED:
            raise ConflictError(f"job {self._job} has ended ({state})", hint=f"hal show {self._job}")
        if runs and state != "running":
            raise ConflictError(f"job {self._job} is not running: it is {state}", hint=f"hal why {self._job}")

    def listen(self, port: int) -> int:
        """Listen on the loopback device; returns the port.

        Raises:
            ConflictError: another program does.
        """
        from hal.core.model.errors import ConflictError

        try:
            self._listener = socket.create_server((LOOPBACK, port), backlog=MAX_CONNECTIONS)
        except OSError as error:
            raise ConflictError(
                f"port {port} of this machine cannot be used: {error.strerror}",
                hint="choose another: hal forward JOB HERE:THERE",
            ) from error
        return int(self._listener.getsockname()[1])

    def serve(self, note: Callable[[str], None]) -> None:
        """Serve connections until the task has ended.

        Args:
            note: told why a connection was refused.
        Raises:
            HALError: the task has ended, or HAL cannot be reached.
        """
        from hal.core.model.errors import ConflictError, HALError

        assert self._listener is not None
        self._listener.settimeout(LOOK_S)
        while True:
            try:
                accepted, _ = self._listener.accept()
            except TimeoutError:
                self.check()
                continue
            self._room.acquire()
            try:
                stream = self._open()
            except ConflictError:
                self._refuse(accepted)
                raise
            except HALError as error:
                self._refuse(accepted)
                note(f"a connection was refused: {error}")
                continue
            threading.Thread(target=self._pass, args=(accepted, stream), daemon=True).start()

    def _refuse(self, accepted: socket.socket) -> None:
        accepted.close()
        self._room.release()

    def _open(self) -> StepStream:
        return self._dialler.open(self._job, kind="forward", port=self._port, **self._where)

    def _pass(self, accepted: socket.socket, stream: StepStream) -> None:
        try:
            _pass_bytes(accepted, stream)
        finally:
            stream.link.close()
            accepted.close()
            self._room.release()


def _pass_bytes(accepted: socket.socket, stream: StepStream) -> None:
    """Pass bytes in both directions until both have ended, or one side has gone."""
    near, far, watched = Link(accepted), stream.link, Watched()
    to_near, to_far = Backlog(), Backlog()
    ended_near = shut = gone = False

    def hear(messages: Iterable[tuple[int, bytes | memoryview]]) -> bool:
        """Whether the other direction goes on."""
        goes_on = True
        for kind, body in messages:
            if kind == OUT:
                to_near.put(body)
            elif kind in (END, FAIL):
                goes_on = False
        return goes_on

    ended_far = not hear(stream.early)
    while True:
        if ended_far and not to_near.bytes and not shut:
            shut = True
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_WR)
        if near.broken or (shut and (gone or (ended_near and not to_far.bytes))):
            return
        watched.want(near.fileno(), read=not ended_near and to_far.bytes < MAX_BACKLOG_BYTES, write=bool(to_near.bytes))
        if gone:  # what it has sent is still to be passed on
            watched.want(far.fileno())
        else:
            watched.want(far.fileno(), read=to_near.bytes < MAX_BACKLOG_BYTES, write=bool(to_far.bytes))
        ready = watched.wait(0 if far.pending else None)
        if near.fileno() in ready and not ended_near and to_far.bytes < MAX_BACKLOG_BYTES:
            data = near.read()
            if data:
                to_far.put(HEAD.pack(DATA, len(data)), data)
            elif data is not None:
                ended_near = True
                to_far.put(message(END))
        if (far.fileno() in ready or far.pending) and to_near.bytes < MAX_BACKLOG_BYTES:
            data = far.read()
            if data == b"":
                gone = ended_far = True
            try:
                ended_far = not hear(stream.reader.feed(data or b"")) or ended_far
            except MalformedStreamError:
                return
        to_near.flush(near.write)
        to_far.flush(far.write)
