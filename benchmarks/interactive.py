"""Interactive work on one host: `hal exec` to its first byte, the echo of a terminal, a forwarded port.

A real HAL; the client's processes, the node's and what they reach share the machine's cores. Beside `hal exec` as
people type it stands the CPU time that the command takes, which other work on the machine hardly touches.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
import tty
from typing import Final

from _private_hal import as_typed, private_hal, say, typed_cpu_ms
from hal.client.address_lookup import find_address
from hal.client.job import Job
from hal.client.step_streams import connections_of, open_stream
from hal.client.sync_client import Client

EXECS: Final = 15
WARM: Final = 2
KEYS: Final = 200
PIECE: Final = bytes(1 << 20)
FORWARDED_BYTES: Final = 1 << 30
DEADLINE_S: Final = 60.0
HAL: Final = [sys.executable, "-m", "hal.cli.main"]
SINK: Final = (
    "import socket,sys\n"
    "s=socket.create_server(('127.0.0.1',int(sys.argv[1])))\n"
    "while True:\n"
    " c,_=s.accept(); n=0; b=bytearray(1<<20)\n"
    " while k:=c.recv_into(b): n+=k\n"
    " c.sendall(str(n).encode()); c.close()"
)


def first_bytes(job: Job) -> list[float]:
    """Milliseconds from the start of the command to the first byte of its output."""
    took = []
    argv, environment = as_typed("exec", job.id, "--", "echo", "x")
    for _ in range(EXECS + WARM):
        begin = time.perf_counter()
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        took.append((time.perf_counter() - begin) * 1000)
        process.wait(DEADLINE_S)
        process.stdout.close()
    return took[WARM:]


def opened(job: Job) -> list[float]:
    """Milliseconds of that which are not the start of the client's interpreter: from request to first message."""
    connections, took = connections_of(find_address()), []
    for _ in range(EXECS + WARM):
        begin = time.perf_counter()
        stream = open_stream(connections, int(job.id), kind="exec", argv=["true"])
        took.append((time.perf_counter() - begin) * 1000)
        stream.link.close()
    return took[WARM:]


def echoes(job: Job) -> list[float]:
    """Milliseconds from a key to its echo by the terminal inside the step."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    process = subprocess.Popen([*HAL, "exec", "-it", job.id, "--", "cat"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    took = []
    try:
        time.sleep(1.0)  # until it reads keys; what is measured comes afterwards
        for number in range(KEYS + WARM):
            key = bytes([97 + number % 26])
            begin = time.perf_counter()
            os.write(ours, key)
            while key not in _read(ours):
                continue
            took.append((time.perf_counter() - begin) * 1000)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        os.close(ours)
    return took[WARM:]


def _read(fd: int) -> bytes:
    ready, _, _ = select.select([fd], [], [], DEADLINE_S)
    assert ready, "nothing was echoed"
    return os.read(fd, 1 << 12)


def throughput(client: Client) -> float:
    """MB/s of one connection through `hal forward`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    job = client.submit([sys.executable, "-c", SINK, str(port)])
    wait_running(job)
    forward = subprocess.Popen([*HAL, "forward", job.id, f"0:{port}"], stdout=subprocess.PIPE, text=True)
    assert forward.stdout is not None
    here = int(forward.stdout.readline().partition(":")[2].split()[0])
    time.sleep(1.0)  # until the sink listens
    try:
        with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as sock:
            begin = time.perf_counter()
            for _ in range(FORWARDED_BYTES // len(PIECE)):
                sock.sendall(PIECE)
            sock.shutdown(socket.SHUT_WR)
            assert int(sock.recv(64)) == FORWARDED_BYTES
            return FORWARDED_BYTES / 1e6 / (time.perf_counter() - begin)
    finally:
        forward.send_signal(signal.SIGINT)
        forward.wait(DEADLINE_S)
        job.cancel()


def wait_running(job: Job) -> None:
    """Until its step runs."""
    while job.refresh().state != "running":
        time.sleep(0.01)


def main() -> None:
    with private_hal("--cpus", "4"), Client() as client:
        job = client.submit(["sleep", "1000"], cpus=1)
        wait_running(job)
        load = round(os.getloadavg()[0], 1)
        taken = first_bytes(job)
        cpu_ms = round(typed_cpu_ms("exec", job.id, "--", "true"), 1)
        best = round(min(taken), 1)
        say("exec-first-byte", statistics.median(taken), "ms", 100.0, higher=False, best=best, cpu_ms=cpu_ms, load=load)
        say("exec-opened", statistics.median(opened(job)), "ms", load=load)
        say("terminal-echo", statistics.median(echoes(job)), "ms", 10.0, higher=False, load=load)
        say("forward", throughput(client), "MB/s", 200.0, load=load)


if __name__ == "__main__":
    main()
