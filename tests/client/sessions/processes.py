"""A session of real processes: a broker and workers, as jobs would start them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hal.client.session import Session, open_session
from hal.runtime.exchange import remove_exchange
from hal.runtime.session_file import new_session_file, private_directory, write_session_file

WAIT_S = 30.0


class Processes:
    """The processes of one session.

    Attributes:
        file: of the session.
        workers: each watches the process that runs tasks.
    """

    def __init__(self, directory: Path, linger_s: int = 0, *, durable: bool = False) -> None:
        self.file = directory / "session.json"
        self.session = new_session_file(directory, name="test", linger_s=linger_s, durable=durable)
        write_session_file(self.file, self.session)
        self.workers: list[subprocess.Popen[str]] = []
        self.broker = self._start_broker()

    def _start_broker(self) -> subprocess.Popen[str]:
        broker = self._start("broker", stdout=subprocess.PIPE)
        assert broker.stdout is not None
        assert broker.stdout.readline() == "ready\n"
        return broker

    def replace_broker(self) -> None:
        """Kill it, and start another one."""
        self.broker.kill()
        self.broker.wait(WAIT_S)
        assert self.broker.stdout is not None
        self.broker.stdout.close()
        self.broker = self._start_broker()

    def add_worker(self) -> subprocess.Popen[str]:
        worker = self._start("worker", stdout=subprocess.DEVNULL)
        self.workers.append(worker)
        return worker

    def open(self) -> Session:
        return open_session(self.file)

    def stop(self) -> None:
        for process in (self.broker, *self.workers):
            process.send_signal(signal.SIGTERM)
        for process in (self.broker, *self.workers):
            process.wait(WAIT_S)
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, daemon: str, stdout: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(self.file)]
        return subprocess.Popen(argv, stdout=stdout, text=True)


@contextmanager
def processes(workers: int = 2, linger_s: int = 0, *, durable: bool = False) -> Iterator[Processes]:
    """Start a session's processes; they end with the block."""
    directory = private_directory()
    started = Processes(directory, linger_s, durable=durable)
    try:
        for _ in range(workers):
            started.add_worker()
        yield started
    finally:
        started.stop()
        remove_exchange(Path(f"/dev/shm/hal-session-{started.session.id}"))
        shutil.rmtree(directory)
