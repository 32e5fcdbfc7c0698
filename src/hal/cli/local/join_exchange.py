"""The exchange by which this machine becomes a node of a HAL on another machine.

The controller is identified by the fingerprint in the token, and by nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from hal.core.model.errors import DeniedError, UnreachableError, error_from_code
from hal.runtime.authority import NodeIdentity, fingerprint, new_request
from hal.runtime.home import Home
from hal.runtime.interface import Credentials, Runtime, TcpAddress
from hal.runtime.real_runtime import RealRuntime
from hal.wire.address import parse_address
from hal.wire.agree import NOT_LEADER, SPOKEN
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.joining import JOINING, Authority, Join, Joined, ReadAuthority
from hal.wire.join_token import JoinToken

ANSWER_MS: Final = 15_000
"""How long the controller may take to answer; a join is a commit."""

MAX_SENT_ON: Final = 4
"""How often controllers may refer the joining machine to one that was not named."""

Answer = TypeVar("Answer", bound=Frame)


class LeaderElsewhereError(UnreachableError):
    """The controller that answered follows another one; it may know the leader's address."""

    def __init__(self, message: str, leader: TcpAddress | None) -> None:
        super().__init__(message, hint="name all controllers with --controller")
        self.leader = leader


def join(home: Home, node: str, token: JoinToken, controllers: Sequence[str]) -> None:
    """Join, and save the certificate under HAL_HOME/nodes/NODE/identity.

    Args:
        controllers: `HOST:PORT` of each; tried in turn.
    Raises:
        DeniedError: the token is not valid, or the controller belongs to another HAL than the token.
        UnreachableError: no controller answered.
    """
    import uvloop

    from hal.runtime.logfile import LogFile
    from hal.runtime.logs import open_log

    identity = NodeIdentity(home.node(node).identity)
    file = LogFile(home.log_file(f"join-{node}"))
    log = open_log(file, f"join-{node}")

    async def work() -> None:
        runtime = RealRuntime(f"join-{node}", home, log)
        try:
            await join_any(runtime, identity, node, token, [TcpAddress(*parse_address(one)) for one in controllers])
        finally:
            await runtime.close()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work())
    finally:
        file.close()


async def join_any(
    runtime: Runtime, identity: NodeIdentity, node: str, token: JoinToken, addresses: Sequence[TcpAddress]
) -> None:
    """As `join`, on a runtime."""
    left = list(addresses)
    tried: list[TcpAddress] = []
    while True:
        address = left.pop(0)
        tried.append(address)
        try:
            await _join_at(runtime, identity, node, token, address)
            return
        except UnreachableError as error:
            leader = error.leader if isinstance(error, LeaderElsewhereError) else None
            if leader is not None and leader not in tried and len(tried) < len(addresses) + MAX_SENT_ON:
                left.insert(0, leader)
            runtime.log.warning("could not join here", controller=str(address), reason=str(error))
            if not left:
                raise


async def _join_at(runtime: Runtime, identity: NodeIdentity, node: str, token: JoinToken, address: TcpAddress) -> None:
    """Raises: as `join`; UnreachableError also where another controller leads."""
    asking = await runtime.connect(address, credentials=Credentials(), conversation=JOINING)
    try:
        await asking.send(ReadAuthority())
        authority = _answer(await asking.receive(ANSWER_MS), Authority, address)
    finally:
        asking.abort()
    if fingerprint(authority.certificate) != token.fingerprint:
        raise DeniedError(
            f"the controller at {address} belongs to another HAL than the join token",
            hint="check --controller, or create a token there: hal token create",
        )
    await runtime.run_blocking(partial(identity.trust, authority.certificate))
    connection = await runtime.connect(address, credentials=identity.joining_credentials, conversation=JOINING)
    try:
        key, request = await runtime.run_blocking(new_request)
        await connection.send(Join(versions=SPOKEN, name=node, token=token.proof, request=request))
        joined = _answer(await connection.receive(ANSWER_MS), Joined, address)
    finally:
        connection.abort()
    keep = partial(identity.store_certificate, joined.certificate, key, joined.authority)
    await runtime.run_blocking(keep)


def _answer(frame: Frame | None, kind: type[Answer], address: TcpAddress) -> Answer:
    if isinstance(frame, kind):
        return frame
    if isinstance(frame, Goodbye):
        if frame.code == NOT_LEADER:
            at = f", at {frame.reason}" if frame.reason else ""
            message = f"the controller at {address} is not the leader; another one is{at}"
            raise LeaderElsewhereError(message, TcpAddress(*parse_address(frame.reason)) if frame.reason else None)
        raise error_from_code(frame.code, frame.reason, frame.hint)
    if frame is None:
        raise UnreachableError(f"the controller at {address} closed the connection before it answered")
    raise MalformedFrameError(f"the controller at {address} answered with an unexpected {type(frame).__name__} frame")
