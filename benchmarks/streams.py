"""Byte streams over a Unix socket and over TLS: MB/s of one stream, against asyncio's own streams in the same run.

Both ends run in this process on uvloop, so both ends' work is in the figures. asyncio's streams carry the same bytes in
the same pieces, without blocks, ends and goodbyes. The order alternates.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop

from hal.runtime.authority import new_request, open_authority
from hal.runtime.home import Home
from hal.runtime.interface import Address, ByteStream, Credentials, TcpAddress, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.tls import client_context, server_context
from hal.wire.roles import Role, host_name

RUNS: Final = 5
TOTAL_BYTES: Final = 256 << 20
PIECE_BYTES: Final = 1 << 20
DAY_MS: Final = 86_400_000
NO_SLOWER_THAN: Final = 0.5
"""The least part of the rate of asyncio's streams."""


async def through_hal(
    runtime: RealRuntime, address: Address, server: Credentials | None, client: Credentials | None
) -> float:
    """Seconds until the last byte was read."""
    done = asyncio.Event()

    async def serve(stream: ByteStream) -> None:
        left = TOTAL_BYTES
        while piece := await stream.read():
            left -= len(piece)
        assert not left
        done.set()

    listener = await runtime.serve(address, serve, server)
    stream = await runtime.dial(listener.address, credentials=client)
    piece = os.urandom(PIECE_BYTES)
    before = time.perf_counter()
    for _ in range(TOTAL_BYTES // PIECE_BYTES):
        await stream.write(piece)
    stream.end()
    await done.wait()
    seconds = time.perf_counter() - before
    stream.abort()
    await listener.close()
    return seconds


async def through_asyncio(path: Path, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None) -> float:
    """The same bytes through asyncio's own streams."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = TOTAL_BYTES
        while left and (piece := await reader.read(PIECE_BYTES)):
            left -= len(piece)
        assert not left
        done.set()
        writer.close()

    if tls is None:
        server = await asyncio.start_unix_server(serve, str(path))
        _, writer = await asyncio.open_unix_connection(str(path))
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0])
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls[1], server_hostname=host_name(Role.SERVICE)
        )
    piece = os.urandom(PIECE_BYTES)
    before = time.perf_counter()
    for _ in range(TOTAL_BYTES // PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    await done.wait()
    seconds = time.perf_counter() - before
    writer.close()
    server.close()
    return seconds


def credentials(root: Path) -> tuple[Credentials, Credentials]:
    """Of a service and of a worker."""
    now_ms = time.time_ns() // 1_000_000
    authority = open_authority(root / "authority", now_ms)
    files = []
    for role in (Role.SERVICE, Role.WORKER):
        key, request = new_request()
        file = root / f"{role}.pem"
        file.write_text(authority.certify(request, role, "bench", now_ms, DAY_MS).certificate + key)
        files.append(Credentials(authority.credentials.authority, file))
    return files[0], files[1]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hal-streams-") as directory:
        root = Path(directory)
        home = Home(root / "home")
        home.create()
        file = LogFile(home.log_file("bench"))
        server, client = credentials(root)
        contexts = server_context(server), client_context(client)

        async def ours(tls: bool) -> float:
            runtime = RealRuntime("bench", home, open_log(file, "bench"), seed=1)
            address: Address = TcpAddress("127.0.0.1", 0) if tls else UnixAddress(home.wire_socket())
            try:
                return await through_hal(runtime, address, server, client)
            finally:
                await runtime.close()

        async def theirs(tls: bool) -> float:
            return await through_asyncio(root / f"{time.monotonic_ns()}.sock", contexts if tls else None)

        for tls in (False, True):
            seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
            kinds: list[tuple[str, Callable[[bool], Awaitable[float]]]] = [("ours", ours), ("theirs", theirs)]
            for run in range(RUNS):
                for name, work in kinds if run % 2 else reversed(kinds):

                    async def one(work: Callable[[bool], Awaitable[float]] = work, tls: bool = tls) -> float:
                        return await work(tls)

                    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                        seconds[name].append(runner.run(one()))
            rates = {name: TOTAL_BYTES / statistics.median(found) / 1e6 for name, found in seconds.items()}
            line = {
                "bench": f"streams-{'tls' if tls else 'unix'}",
                "value": round(rates["ours"]),
                "unit": "MB/s",
                "asyncio": round(rates["theirs"]),
                "target": round(NO_SLOWER_THAN * rates["theirs"]),
                "note": "one stream, both ends in one process",
            }
            print(json.dumps(line), flush=True)
        home.drop_socket_dir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
