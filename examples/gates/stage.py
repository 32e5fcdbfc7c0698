#!/usr/bin/env python3
"""A gate's service in one file, standard library only: it copies a data set to the node before a job begins.

    python3 stage.py HAL_HOME SOURCE SCRATCH

It serves HAL_HOME/gates/stage.sock. A job names the data set: `hal run --gate stage,argument=genome -- ./align`. The
service copies SOURCE/genome to SCRATCH/genome, once for all jobs that name it, and answers `waiting` meanwhile. As a
finalising gate it removes the copy when no attempt uses it any more. See docs/gates.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socketserver
import sys
import threading
from pathlib import Path

MAX_REQUEST_BYTES = 1 << 16
READ_S = 10.0
"""An agent that has not sent its line by then is gone."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What an argument may be. It comes from a user and becomes a path: everything else is refused."""


class Stage:
    """The data sets on this node, and who uses them."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self._source, self._scratch = source, scratch
        self._lock = threading.Lock()
        self._users: dict[str, set[tuple[int, int, int, int]]] = {}
        self._copies: dict[str, threading.Thread] = {}
        self._faults: dict[str, str] = {}

    def answer(self, request: dict) -> dict:
        """The answer to a request that is well formed."""
        name = request["argument"]
        step = (request["job"], request["task"], request["attempt"], request["rank"])
        if not NAME.fullmatch(name):
            return {"state": "refused", "reason": "the argument is not the name of a data set"}
        with self._lock:
            if request["ask"] == "cancel" or request["phase"] == "finalising":
                self._leave(name, step)
                return {"state": "ready"}
            self._users.setdefault(name, set()).add(step)
            if (self._scratch / name).exists():
                return {"state": "ready"}
            copy = self._copies.get(name)
            if copy is not None and not copy.is_alive():
                del self._copies[name]
                self._leave(name, step)
                return {"state": "refused", "reason": self._faults.pop(name, "it was removed meanwhile")}
            if copy is None:
                copy = self._copies[name] = threading.Thread(target=self._copy, args=(name,), daemon=True)
                copy.start()
        copy.join(0.05)  # a small one is there at once
        ready = (self._scratch / name).exists()
        return {"state": "ready"} if ready else {"state": "waiting", "reason": f"{name} is copied", "again_ms": 200}

    def _leave(self, name: str, step: tuple[int, int, int, int]) -> None:
        users = self._users.get(name, set())
        users.discard(step)
        if not users:
            self._users.pop(name, None)
            shutil.rmtree(self._scratch / name, ignore_errors=True)

    def _copy(self, name: str) -> None:
        part = self._scratch / f".{name}.part"
        try:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self._source / name, part)
            with self._lock:
                part.rename(self._scratch / name)
                del self._copies[name]
        except OSError as error:
            self._faults[name] = f"{name} cannot be copied: {error.strerror or error}"


class Handler(socketserver.StreamRequestHandler):
    """One connection: one line, one answer."""

    timeout = READ_S
    stage: Stage

    def handle(self) -> None:
        """Read, decide, answer. An agent that went away needs no answer."""
        try:
            line = self.rfile.readline(MAX_REQUEST_BYTES)
            answer = self._answer(line)
            self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            return

    def _answer(self, line: bytes) -> dict:
        try:
            request = json.loads(line)
            known = request["version"] == 1 and request["ask"] in ("enter", "cancel")
            if known and isinstance(request["argument"], str):
                return self.stage.answer(request)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        return {"state": "refused", "reason": "not a request of version 1"}


class Server(socketserver.ThreadingUnixStreamServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 128


def main(home: str, source: str, scratch: str) -> None:
    """Serve until SIGTERM."""
    directory = Path(home) / "gates"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / "stage.sock"
    path.unlink(missing_ok=True)
    Path(scratch).mkdir(parents=True, exist_ok=True)
    Handler.stage = Stage(Path(source), Path(scratch))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # A socket's path may have 107 bytes; from inside of its directory it has ten.
    os.chdir(directory)
    with Server(path.name, Handler) as server:
        try:
            server.serve_forever()
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*(os.path.abspath(argument) for argument in sys.argv[1:]))
