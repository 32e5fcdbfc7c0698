"""The exchanges by which a machine becomes a node of a HAL elsewhere, or a process gets a certificate of its role, and
the next one, and learns which ones of others are still good.

The first time, the controller is identified by the fingerprint in the token, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from hal.core.model.errors import DeniedError, InternalError, UnreachableError, error_from_code
from hal.runtime.authority import Identity, fingerprint, new_request
from hal.runtime.interface import Credentials, Runtime, TcpAddress
from hal.wire.address import parse_address
from hal.wire.agree import NOT_LEADER, SPOKEN
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.joining import (
    JOINING,
    MAX_SERIALS,
    Authority,
    CertificatesRefused,
    CheckCertificates,
    Join,
    Joined,
    ReadAuthority,
    Renew,
)
from hal.wire.join_token import JoinToken
from hal.wire.roles import Role

ANSWER_MS: Final = 15_000
"""How long the controller may take to answer; a join is a commit."""

MAX_SENT_ON: Final = 4
"""How often controllers may refer the joining machine to one that was not named."""

Answer = TypeVar("Answer", bound=Frame)
T = TypeVar("T")


class LeaderElsewhereError(UnreachableError):
    """The controller that answered follows another one; it may know the leader's address."""

    def __init__(self, message: str, leader: TcpAddress | None) -> None:
        super().__init__(message, hint="name all controllers with --controller")
        self.leader = leader


async def join_any(
    runtime: Runtime,
    identity: Identity,
    name: str,
    token: JoinToken,
    addresses: Sequence[TcpAddress],
    role: Role = Role.AGENT,
) -> None:
    """Get the first certificate under that name, with a token of that role, and save it.

    Args:
        addresses: of controllers; tried in turn.
    Raises:
        DeniedError: the token is not valid, or the controller belongs to another HAL than the token.
        UnreachableError: no controller answered.
    """
    await _at_any(runtime, addresses, lambda address: _join_at(runtime, identity, name, token, address, role))


async def renew_any(runtime: Runtime, identity: Identity, addresses: Sequence[TcpAddress]) -> None:
    """Get the next certificate of a process that is no node, and save it in place of the present one.

    `hal.runtime.role_certificate` does it in time for a process that goes on running.

    Raises:
        DeniedError: the present one was revoked, or has expired.
        UnreachableError: no controller answered.
    """
    await _at_any(runtime, addresses, lambda address: _renew_at(runtime, identity, address))


async def refused_by_any(
    runtime: Runtime, identity: Identity, serials: Sequence[str], addresses: Sequence[TcpAddress]
) -> frozenset[str]:
    """Return which of these certificates are not good any more: revoked, expired, replaced for another machine, or not
    known to this HAL.

    Args:
        identity: of the process that asks.
        serials: at most `MAX_SERIALS`.
    Raises:
        DeniedError: its own one is not good.
        UnreachableError: no controller answered.
    """
    if len(serials) > MAX_SERIALS:
        raise InternalError(f"{len(serials)} certificates to be checked at once")
    return await _at_any(runtime, addresses, lambda address: _refused_at(runtime, identity, serials, address))


async def exchange_certificate(runtime: Runtime, identity: Identity, ask: Callable[[str], Awaitable[Joined]]) -> Joined:
    """Make a new key, have it certified and store both; returns the answer.

    Args:
        ask: sends a signing request (PEM), and returns the answer.
    """
    key, request = await runtime.run_blocking(new_request)
    joined = await ask(request)
    await runtime.run_blocking(partial(identity.store_certificate, joined.certificate, key, joined.authority))
    return joined


async def _at_any(runtime: Runtime, addresses: Sequence[TcpAddress], ask: Callable[[TcpAddress], Awaitable[T]]) -> T:
    left = list(addresses)
    tried: list[TcpAddress] = []
    while True:
        address = left.pop(0)
        tried.append(address)
        try:
            return await ask(address)
        except UnreachableError as error:
            leader = error.leader if isinstance(error, LeaderElsewhereError) else None
            if leader is not None and leader not in tried and len(tried) < len(addresses) + MAX_SENT_ON:
                left.insert(0, leader)
            runtime.log.warning(
                "a controller did not answer about certificates", controller=str(address), reason=str(error)
            )
            if not left:
                raise


async def _join_at(
    runtime: Runtime, identity: Identity, name: str, token: JoinToken, address: TcpAddress, role: Role
) -> None:
    """Raises: as `join_any`; UnreachableError also where another controller leads."""
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

        async def ask(request: str) -> Joined:
            await connection.send(Join(versions=SPOKEN, name=name, token=token.proof, request=request, role=role))
            joined = _answer(await connection.receive(ANSWER_MS), Joined, address)
            if joined.role is not role:
                raise DeniedError(
                    f"the controller at {address} knows no certificates of the role {role}", hint="it is an older HAL"
                )
            return joined

        await exchange_certificate(runtime, identity, ask)
    finally:
        connection.abort()


async def _renew_at(runtime: Runtime, identity: Identity, address: TcpAddress) -> None:
    """Raises: as `renew_any`; UnreachableError also where another controller leads."""
    connection = await runtime.connect(address, credentials=identity.credentials, conversation=JOINING)
    try:

        async def ask(request: str) -> Joined:
            await connection.send(Renew(request=request))
            return _answer(await connection.receive(ANSWER_MS), Joined, address)

        await exchange_certificate(runtime, identity, ask)
    finally:
        connection.abort()


async def _refused_at(
    runtime: Runtime, identity: Identity, serials: Sequence[str], address: TcpAddress
) -> frozenset[str]:
    """Raises: as `refused_by_any`; UnreachableError also where another controller leads."""
    connection = await runtime.connect(address, credentials=identity.credentials, conversation=JOINING)
    try:
        await connection.send(CheckCertificates(serials=tuple(serials)))
        return frozenset(_answer(await connection.receive(ANSWER_MS), CertificatesRefused, address).serials)
    finally:
        connection.abort()


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
