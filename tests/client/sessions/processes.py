"""A session of real processes: a broker and workers, as jobs would start them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from hal.client.session import Session, open_session
from hal.client.sessions.demand import Wanted
from hal.runtime.exchange import remove_exchange
from hal.runtime.session_certificates import over_network
from hal.runtime.session_file import new_session_file, private_directory, shards_of, write_session_file

WAIT_S = 30.0

T = TypeVar("T")


class OneGroup:
    """Slots of one shape, without a HAL: what it is told is passed on."""

    def __init__(
        self,
        wanted: Wanted,
        want: Callable[[int], object] = lambda _count: None,
        why_none: Callable[[], str] = lambda: "",
        *,
        shape: str = "",
        threads: int = 1,
    ) -> None:
        self.shape, self.wanted, self.threads, self.told = shape, wanted, threads, 1
        self._want, self._why_none = want, why_none

    def want(self, count: int) -> None:
        self._want(count)
        self.told = count

    def why_none(self) -> str:
        return self._why_none()


class Processes:
    """The processes of one session.

    Attributes:
        file: of the session.
        workers: each watches the process that runs tasks.
    """

    def __init__(
        self,
        directory: Path,
        linger_s: int = 0,
        *,
        durable: bool = False,
        network: bool = False,
        shapes: tuple[str, ...] = (),
        shards: int = 0,
    ) -> None:
        self.file = self.broker_file = directory / "session.json"
        made = new_session_file(directory, name="test", linger_s=linger_s, durable=durable)
        self.session = replace(made, shapes=shapes, shards=shards)
        if network:
            address = f"tcp:127.0.0.1:{free_port()}"
            brokers, others = over_network(self.session, address, now_ms())
            self.session = replace(others, dial=(address,))
            self.broker_file = directory / "broker.json"
            write_session_file(self.broker_file, brokers)
        write_session_file(self.file, self.session)
        self.workers: list[subprocess.Popen[str]] = []
        self.broker = self._start_broker()
        self.others = [self._start_broker(shard) for shard in range(1, shards)]

    @property
    def brokers(self) -> list[subprocess.Popen[str]]:
        """Of all shards."""
        return [self.broker, *self.others]

    def _start_broker(self, shard: int = 0) -> subprocess.Popen[str]:
        broker = self._start("broker", stdout=subprocess.PIPE, words=("--shard", str(shard)))
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

    def replace_shard(self, shard: int) -> None:
        """Kill the broker of a shard that is not the first, and start another one."""
        former = self.others[shard - 1]
        former.kill()
        former.wait(WAIT_S)
        assert former.stdout is not None
        former.stdout.close()
        self.others[shard - 1] = self._start_broker(shard)

    def add_worker(self, *words: str, task: int = 0) -> subprocess.Popen[str]:
        worker = self._start("worker", stdout=subprocess.DEVNULL, words=words, task=task)
        self.workers.append(worker)
        return worker

    def open(self) -> Session:
        return open_session(self.file)

    def stop(self) -> None:
        for process in (*self.brokers, *self.workers):
            process.send_signal(signal.SIGTERM)
        for process in (*self.brokers, *self.workers):
            process.wait(WAIT_S)
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, daemon: str, stdout: int, words: Sequence[str] = (), task: int = 0) -> subprocess.Popen[str]:
        file = self.broker_file if daemon == "broker" else self.file
        argv = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(file), *words]
        return subprocess.Popen(argv, stdout=stdout, text=True, env={**os.environ, "HAL_TASK": str(task)})


def results_of(session: Session, futures: Sequence[Future[T]]) -> list[T]:
    """The results of all of them; if some do not come, the failure says how the session goes."""
    wait(futures, WAIT_S)
    left = [at for at, future in enumerate(futures) if not future.done()]
    assert not left, f"{len(left)} of {len(futures)} tasks have no result: {left[:9]}; {session.numbers(slots=True)}"
    return [future.result() for future in futures]


def free_port() -> int:
    """At which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def processes(
    workers: int = 2,
    linger_s: int = 0,
    *,
    durable: bool = False,
    network: bool = False,
    shapes: tuple[str, ...] = (),
    shards: int = 0,
) -> Iterator[Processes]:
    """Start a session's processes; they end with the block.

    Args:
        network: all who dial the broker do so over TLS.
    """
    directory = private_directory()
    started = Processes(directory, linger_s, durable=durable, network=network, shapes=shapes, shards=shards)
    try:
        for task in range(workers):
            started.add_worker(task=task)
        yield started
    finally:
        started.stop()
        for one in shards_of(started.session):
            remove_exchange(Path(f"/dev/shm/hal-session-{one.id}"))
        shutil.rmtree(directory)
