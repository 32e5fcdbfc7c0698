"""`python -m hal.daemons.broker --session FILE`: the broker of a session, until it is stopped or nobody uses it.

Prints `ready` once it listens. Exit codes: 0 the session is over; 2 the file is not usable, 6 another broker listens
there, 7 the journal cannot be written, 70 a fault of HAL, 75 it was stopped, and the session is durable.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from hal.core.model.errors import HALError
from hal.core.model.printable import printable
from hal.daemons.broker.telemetry import BrokerTelemetry
from hal.planes.sessions.serving import BrokerService, SessionTerms
from hal.runtime.exchange import make_exchange, make_waiting_directory, remove_exchange, token_of
from hal.runtime.inheritance import confine_daemon
from hal.runtime.interface import Address, Credentials, Runtime, TcpAddress, UnixAddress
from hal.runtime.memory_file import in_memory
from hal.runtime.payload_files import PayloadFiles
from hal.runtime.privacy import make_private, write_private
from hal.runtime.process import allow_many_connections, run_apart
from hal.runtime.regular_files import read_regular
from hal.runtime.session_file import (
    ANY_HOST,
    IN_SECRETS,
    OTHERS_FILE,
    PORT_FILE,
    SESSION_FILE,
    SessionFile,
    parse_address,
    private_directory,
    read_session_file,
    shard_of,
)
from hal.runtime.startup import EXIT_BAD_INPUT, EXIT_STORE
from hal.wire.frames.sessions import SESSION_PAUSES, SESSIONS, SHARD_CLOSED

EXIT_STOPPED: Final = 75
"""Of the broker of a durable session that was told to end: it is to be started again (EX_TEMPFAIL)."""
READY: Final = "ready"
"""The line of a broker that listens."""
OF_ITS_STEP: Final = ("HAL_SECRETS_DIR", "HAL_PORT_TASKS", "HAL_TASK", "HAL_JOB_ID", "HAL_QUEUE")
"""Variables of its step that it reads."""
LOOK_MS: Final = 250
"""How often it looks whether it still has clients."""


def main(argv: list[str]) -> int:
    """Run the broker; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="hal-broker", description="hand the tasks of a session to its workers")
    parser.add_argument("--session", required=True, metavar="FILE", help="the session's file")
    parser.add_argument(
        "--shard", default="$HAL_TASK", metavar="N", help="which of the session's brokers this is, if it has several"
    )
    arguments = parser.parse_args(argv)
    file = Path(os.path.expandvars(arguments.session))
    try:
        session = read_session_file(file)
        several, shard = bool(session.shards), ""
        if several:
            shard = os.path.expandvars(arguments.shard)
            session = shard_of(session, int(shard) if shard.isascii() and shard.isdigit() else -1)
        addresses = [_address(address) for address in session.listen]
    except HALError as error:
        print(printable(f"hal-broker: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    allow_many_connections()

    if arguments.session.startswith(IN_SECRETS):
        directory = private_directory()
    else:
        directory = file.parent / shard
        make_private(directory)

    async def serve(runtime: Runtime) -> int:
        return await _serve(runtime, directory, session, addresses, several=several)

    return run_apart("broker", directory, serve)


async def _serve(
    runtime: Runtime, directory: Path, session: SessionFile, addresses: list[Address], *, several: bool
) -> int:
    exchange = make_exchange(session.id, directory, kept=session.journal)
    journal = runtime.open_directory(Path(session.journal)) if session.journal else None
    waiting = make_waiting_directory(session.id, directory)
    place = runtime.open_directory(waiting)
    files = PayloadFiles(exchange)
    terms = SessionTerms(
        session.id,
        session.token,
        str(exchange),
        journal,
        token_of(exchange),
        files,
        waiting=place,
        shapes=session.shapes,
    )
    service = BrokerService(runtime, terms)
    try:
        await service.restore()
    except OSError as error:
        return _complain(f"the journal {session.journal} cannot be read or written: {error.strerror or error}")
    with in_memory(session.authority) as authority, in_memory(session.certificate) as certificate:
        for address in addresses:
            await runtime.listen(address, service.serve, Credentials(authority, certificate), SESSIONS)
        for address in _former_addresses(directory, addresses) if journal is not None else ():
            with contextlib.suppress(HALError, OSError):  # it is somebody else's now
                await runtime.listen(address, service.serve, Credentials(authority, certificate), SESSIONS)
    print(READY, flush=True)  # noqa: T201
    telemetry = BrokerTelemetry(
        runtime, session.collector, _name(runtime), os.environ.get("HAL_QUEUE", ""), service.numbers
    )
    telemetry.begin()
    unused = False
    while not runtime.stopping.is_set():
        await runtime.sleep(LOOK_MS)
        alone_ms = runtime.monotonic_ms() - service.last_client_ms
        if session.linger_s and not service.has_clients and alone_ms > session.linger_s * 1_000:
            unused = True
            runtime.stop("nobody uses the session any more")
    await telemetry.end()
    remove_exchange(waiting)
    if journal is not None and not service.ended and not unused:  # it is stopped, and another one goes on
        service.close(service.broken or "the broker of the session was stopped", SESSION_PAUSES)
        return _complain(service.broken) if service.broken else EXIT_STOPPED
    if several and not service.ended:
        service.close("this broker of the session ends", SHARD_CLOSED)
    else:
        service.close("the session is over")
    if journal is None or service.ended or (session.passing and not service.keeps_results):
        remove_exchange(exchange)
        if journal is not None:
            remove_exchange(Path(session.journal))
        if session.passing:
            _clear(directory, addresses)
            if several:
                _clear(directory.parent, [], unless_used=True)
    return 0


def _former_addresses(directory: Path, addresses: list[Address]) -> list[Address]:
    """Where workers and clients know the broker of a durable session that another process was before: HAL gives each
    one a port of its own."""
    now = next((address for address in addresses if isinstance(address, TcpAddress)), None)
    if now is None:
        return []
    try:
        former = int(read_regular(directory / PORT_FILE, 16))
    except (OSError, ValueError):
        write_private(directory / PORT_FILE, str(now.port))
        return []
    return [TcpAddress(now.host, former)] if former != now.port else []


def _name(runtime: Runtime) -> str:
    """Of this process, among all brokers: the step that it is."""
    job, task = os.environ.get("HAL_JOB_ID", ""), os.environ.get("HAL_TASK", "")
    return f"{job}.{task}" if job else f"{runtime.boot_id}:{runtime.pid}"


def _complain(reason: str) -> int:
    print(printable(f"hal-broker: {reason}"), file=sys.stderr)  # noqa: T201
    return EXIT_STORE


def _address(text: str) -> Address:
    place = parse_address(text)
    if isinstance(place, Path):
        return UnixAddress(place)
    host, port = place
    return TcpAddress("" if host == ANY_HOST else host, port)


def _clear(directory: Path, addresses: list[Address], *, unless_used: bool = False) -> None:
    """Take away what the session had in the directory that was made for it.

    Args:
        unless_used: by another broker of the session, which has a directory in it.
    """
    with contextlib.suppress(OSError):
        if unless_used and any(path.is_dir() for path in directory.iterdir()):
            return
    sockets = [address.path for address in addresses if isinstance(address, UnixAddress)]
    for path in (*sockets, *(directory / name for name in (SESSION_FILE, OTHERS_FILE, PORT_FILE, "broker.log"))):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


if __name__ == "__main__":
    confine_daemon(keep=OF_ITS_STEP)
    sys.exit(main(sys.argv[1:]))
