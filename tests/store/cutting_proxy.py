"""A proxy before PostgreSQL's socket that cuts a connection in COMMIT: before or after it passed."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from typing import Final, Literal

PORT: Final = 5432
CHUNK: Final = 64 << 10
Cut = Literal["", "before", "after"]


class CuttingProxy:
    """Serves `.s.PGSQL.5432` in a directory of its own; use it as a context manager."""

    def __init__(self, server: Path) -> None:
        self._server = server / f".s.PGSQL.{PORT}"
        self._directory = tempfile.TemporaryDirectory(prefix="hal-px-", dir="/tmp")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.directory / f".s.PGSQL.{PORT}"))
        self._listener.listen(16)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.cut: Cut = ""
        """What happens to the next COMMIT: its connection ends before the server sees it, or before its answer is
        seen. '' again afterwards."""
        self.cuts = 0
        self._start(self._accept)

    @property
    def directory(self) -> Path:
        """For `host=`."""
        return Path(self._directory.name)

    def _start(self, work: object, *args: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(str(self._server))
            except OSError:
                client.close()
                server.close()
                continue
            self._open += [client, server]
            self._start(self._forward, client, server, True)
            self._start(self._forward, server, client, False)

    def _forward(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        try:
            while chunk := source.recv(CHUNK):
                if to_server and self.cut and b"COMMIT" in chunk:
                    cut, self.cut = self.cut, ""
                    self.cuts += 1  # before the client can see its connection end
                    if cut == "after":
                        # Its answer goes nowhere: this end is closed to the client first.
                        source.shutdown(socket.SHUT_RDWR)
                        target.sendall(chunk)
                    break
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_WR if to_server else socket.SHUT_RDWR)
                except OSError:
                    continue

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(30)
        for end in self._open:
            end.close()
        self._directory.cleanup()
