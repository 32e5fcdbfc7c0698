"""The exchanges by which this machine becomes a node, and a process here gets a certificate, as commands run them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hal.runtime.authority import Identity, NodeIdentity
from hal.runtime.home import Home
from hal.runtime.interface import Runtime, TcpAddress
from hal.runtime.joining import join_any, renew_any
from hal.runtime.real_runtime import RealRuntime
from hal.wire.address import parse_address
from hal.wire.join_token import JoinToken
from hal.wire.roles import Role


def join(home: Home, node: str, token: JoinToken, controllers: Sequence[str]) -> None:
    """Join, and save the certificate under HAL_HOME/nodes/NODE/identity.

    Args:
        controllers: `HOST:PORT` of each; tried in turn.
    Raises:
        DeniedError: the token is not valid, or the controller belongs to another HAL than the token.
        UnreachableError: no controller answered.
    """
    identity = NodeIdentity(home.node(node).identity)
    _exchange(home, node, lambda runtime: join_any(runtime, identity, node, token, _addresses(controllers)))


def request(
    home: Home, identity: Identity, role: Role, name: str, token: JoinToken, controllers: Sequence[str]
) -> None:
    """Get the first certificate of a process of that role, and save it.

    Raises: as `join`.
    """
    _exchange(home, name, lambda runtime: join_any(runtime, identity, name, token, _addresses(controllers), role))


def renew(home: Home, identity: Identity, controllers: Sequence[str]) -> None:
    """Get the next certificate, and save it.

    Raises:
        DeniedError: the present one was revoked, or has expired.
        UnreachableError: no controller answered.
    """
    _exchange(home, "renewal", lambda runtime: renew_any(runtime, identity, _addresses(controllers)))


def _addresses(controllers: Sequence[str]) -> list[TcpAddress]:
    return [TcpAddress(*parse_address(one)) for one in controllers]


def _exchange(home: Home, name: str, work: Callable[[Runtime], Awaitable[None]]) -> None:
    import uvloop

    from hal.runtime.logfile import LogFile
    from hal.runtime.logs import open_log

    file = LogFile(home.log_file(f"join-{name}"))
    log = open_log(file, f"join-{name}")

    async def whole() -> None:
        runtime = RealRuntime(f"join-{name}", home, log)
        try:
            await work(runtime)
        finally:
            await runtime.close()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())
    finally:
        file.close()
