"""The relay between clients and nodes that cannot reach each other: MB/s of one stream through it and without it, as
plain bytes and with TLS between the two ends, which is how streams go.

The relay is the process that a controller starts; both ends are processes of this machine, so that with TLS three
processes share its cores. Through it and directly alternate.
Prints JSON lines: `python benchmarks/relay.py`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from _private_hal import say
from hal.runtime import stream_relay
from hal.runtime.authority import new_request, open_authority
from hal.wire.roles import Role
from hal.wire.step_streams import CLIENT, MEETING_BYTES, NODE, meet

TARGET_MB_S: Final = 200.0
RUNS: Final = 5
TOTAL_BYTES: Final = 1 << 30
PIECE: Final = bytes(1 << 20)
DAY_MS: Final = 86_400_000
START_S: Final = 10.0


def sink(sock: socket.socket, certificate: str) -> None:
    """Read to the end, and answer how much it was."""
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        sock = context.wrap_socket(sock, server_side=True)
    buffer, read = bytearray(len(PIECE)), 0
    while read < TOTAL_BYTES and (some := sock.recv_into(buffer)):
        read += some
    sock.sendall(str(read).encode())
    sock.close()


def rate(ours: socket.socket, theirs: socket.socket, certificate: str) -> float:
    """MB/s from one end to a process that has the other."""
    process = multiprocessing.get_context("fork").Process(target=sink, args=(theirs, certificate), daemon=True)
    process.start()
    theirs.close()
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the ends know each other here
        ours = context.wrap_socket(ours)
    began = time.perf_counter()
    for _ in range(TOTAL_BYTES // len(PIECE)):
        ours.sendall(PIECE)
    assert int(ours.recv(64)) == TOTAL_BYTES
    seconds = time.perf_counter() - began
    ours.close()
    process.join()
    return TOTAL_BYTES / 1e6 / seconds


def through(orders: Path) -> tuple[socket.socket, socket.socket]:
    """Two connections that meet at the relay: the client's, the node's."""
    name = secrets.token_hex(MEETING_BYTES)[:MEETING_BYTES]
    with socket.socket(socket.AF_UNIX) as order:
        order.connect(str(orders))
        order.sendall(json.dumps({"meeting": name, "by": "bench"}).encode())
        port = json.loads(order.recv(4_096))["port"]
    ends = []
    for role in (CLIENT, NODE):
        end = socket.create_connection(("127.0.0.1", port))
        end.sendall(meet(role, name))
        ends.append(end)
    return ends[0], ends[1]


def direct() -> tuple[socket.socket, socket.socket]:
    """Two ends of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


def certificate_in(root: Path) -> str:
    """A certificate and its key, as a node has them."""
    now_ms = time.time_ns() // 1_000_000
    key, request = new_request()
    made = open_authority(root / "authority", now_ms).certify(request, Role.WORKER, "bench", now_ms, DAY_MS)
    path = root / "node.pem"
    path.write_text(made.certificate + key)
    return str(path)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="hal-relay-") as directory:
        root, orders = Path(directory), Path(directory) / "relay.sock"
        certificate = certificate_in(root)
        relay = subprocess.Popen([sys.executable, "-I", "-S", stream_relay.__file__, str(orders), "127.0.0.1", "0"])
        try:
            deadline = time.monotonic() + START_S
            while not orders.exists():
                assert time.monotonic() < deadline, "the relay did not start"
                time.sleep(0.01)
            for name, pem in (("plain", ""), ("tls", certificate)):
                found: dict[str, list[float]] = {"relayed": [], "direct": []}
                for _ in range(RUNS):
                    found["direct"].append(rate(*direct(), pem))
                    found["relayed"].append(rate(*through(orders), pem))
                say(f"relay-{name}", statistics.median(found["relayed"]), "MB/s", TARGET_MB_S,
                    direct=round(statistics.median(found["direct"])), load=round(os.getloadavg()[0], 1),
                    note="one stream through the relay; both ends on this machine")  # fmt: skip
        finally:
            relay.terminate()
            with suppress(subprocess.TimeoutExpired):
                relay.wait(START_S)


if __name__ == "__main__":
    main()
