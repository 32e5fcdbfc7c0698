"""Which machines are admitted as nodes, and which processes get certificates of other roles: the TLS listener, join
tokens, certificates given, renewed and taken back.

Decisions are those of `hal.planes.joining`, staged in its plane; nothing is said before they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from hal.core.model import ConflictError, DeniedError, NodeState, NotFoundError, SpecError
from hal.core.model.errors import one_line
from hal.core.model.facts import Facts
from hal.core.model.node_address import is_node_address, may_state, same_address
from hal.daemons.controller.config import Config
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.inbox import Inbox
from hal.daemons.controller.cycle.plane_group import PlanePort
from hal.daemons.controller.nodes.budget import MAX_LABEL
from hal.daemons.controller.nodes.certified_port import CertifiedPort, open_port
from hal.planes.joining import JoiningPlane, TokenState, hash_of, state_of
from hal.planes.tasks import TaskPlane
from hal.runtime.authority import Authority, Issued, open_authority
from hal.runtime.home import check_node_name
from hal.runtime.interface import Connection, OnConnect, Runtime
from hal.runtime.line_budget import BudgetedLogs
from hal.store import CertificateRow, JoinTokenRow, PutJoining
from hal.wire.agree import agree_version
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.joining import Authority as AuthorityFrame
from hal.wire.frames.joining import CertificatesRefused, CheckCertificates, Join, Joined, ReadAuthority, Renew
from hal.wire.join_token import JoinToken
from hal.wire.roles import Role

T = TypeVar("T")

DEFAULT_LIFE_MS: Final = 3_600_000
ID_DIGITS: Final = 8
MAX_TOKEN_CHARS: Final = 200


class JoinTokenView(Struct, frozen=True, kw_only=True):
    """A join token, without its secret."""

    id: str
    state: TokenState
    role: str
    """For which it gives certificates; `agent`: nodes."""
    node: str
    """The only node, or name in that role, that may join with it; empty: any new one."""
    user: str
    """Who made it."""
    created_ms: int
    expires_ms: int
    used_by: str
    """The node, or name in that role, that joined with it last."""
    uses: int
    """So many machines can join with it; 0: any number, until it expires."""
    used: int
    """So many have."""
    labels: dict[str, str]
    """That each of these nodes has."""


class NewJoinToken(Struct, frozen=True, kw_only=True):
    """A new join token; its text is shown only once."""

    token: str
    id: str
    role: str
    node: str
    uses: int
    labels: dict[str, str]
    expires_ms: int
    wire: str
    """Where agents dial, as this controller listens: `HOST:PORT`."""


class JoinTokensList(Struct, frozen=True, kw_only=True):
    """Join tokens, oldest first."""

    tokens: list[JoinTokenView]


class CertificateView(Struct, frozen=True, kw_only=True):
    """A certificate that was given on request."""

    serial: str
    role: str
    name: str
    """Of the node, or of the process."""
    issued_ms: int
    expires_ms: int
    revoked_ms: int | None
    token: str
    """Id of the join token with which the first of that name was got; empty: not known."""


class CertificatesList(Struct, frozen=True, kw_only=True):
    """Certificates by role, name and age."""

    certificates: list[CertificateView]


class NodeAdmission:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        config: Config,
        plane: TaskPlane,
        joining: PlanePort[JoiningPlane],
        inbox: Callable[[], Inbox],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._config = config
        self._plane = plane
        self._joining = joining
        self._inbox = inbox
        self._logs = BudgetedLogs(runtime.log, runtime.monotonic_ms)
        self._membership = joining.plane.membership
        self._authority: Authority | None = None
        self._port: CertifiedPort | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, on_connect: OnConnect) -> None:
        """Listen, if hal.toml says where.

        Raises:
            ConflictError: that address cannot be listened on.
            DeniedError: the authority's files cannot be used.
        """
        if self._config.wire is None:
            return
        opened = partial(open_authority, self._runtime.paths.authority, self._runtime.now_ms())
        authority = await self._runtime.run_blocking(opened)
        self._authority = authority
        self._port = await open_port(self._runtime, authority, self._config.wire, on_connect)

    async def close(self) -> None:
        """Accept no more connections."""
        if self._port is not None:
            await self._port.close()

    @property
    def wire(self) -> str:
        """Where it listens, as `HOST:PORT`; '' where it does not."""
        return self._port.address_text if self._port is not None else ""

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create_token(
        self,
        *,
        node: str,
        life_ms: int,
        user: str,
        uses: int = 1,
        labels: dict[str, str] | None = None,
        role: str = Role.AGENT,
    ) -> NewJoinToken:
        """Create a token with which machines join, or processes of that role get certificates; see
        `Membership.create`.

        Raises:
            ConflictError: this controller does not listen for agents, or the node is of its own machine.
            SpecError: no node's name, or a time out of range.
            OverloadedError: too many wait already.
        """
        authority = self._listening()
        if node:
            check_node_name(node)
        token_id, secret = self._runtime.new_id()[:ID_DIGITS], self._runtime.new_id()

        def decide(now_ms: int) -> PutJoining:
            if role == Role.AGENT:
                self._membership.check_joins(node, known=self._known(node))
            return self._membership.create(
                token_id,
                hash_of(secret),
                node=node,
                life_ms=life_ms,
                user=user,
                now_ms=now_ms,
                uses=uses,
                labels=labels,
                role=role,
            )

        made = await self._commit(decide)
        text = JoinToken(token_id, secret, authority.fingerprint).text
        row = made.tokens[0]
        return NewJoinToken(
            token=text,
            id=token_id,
            role=row.role,
            node=node,
            uses=row.uses,
            labels=row.labels,
            expires_ms=row.expires_ms,
            wire=self.wire,
        )

    def tokens(self) -> JoinTokensList:
        """All that are kept."""
        now_ms = self._clock.now_ms()
        return JoinTokensList(tokens=[_token_view(row, now_ms) for row in self._membership.tokens()])

    async def revoke_token(self, token_id: str) -> JoinTokenView:
        """Revoke a join token.

        Raises:
            NotFoundError, ConflictError: see `Membership.revoke_token`.
        """
        made = await self._commit(partial(self._membership.revoke_token, token_id))
        return _token_view(made.tokens[0], self._clock.now_ms())

    async def revoke_node(self, node: str) -> None:
        """Revoke the certificates of a node; the caller closes its live connection.

        Raises:
            NotFoundError: it has none.
        """

        def decide(now_ms: int) -> PutJoining:
            change = self._membership.revoke(node, now_ms)
            if not change.certificates:
                raise NotFoundError(
                    f"node '{node}' has no certificate that could be revoked",
                    hint="only nodes that joined with a token have one; `hal nodes` lists all",
                )
            return change

        await self._commit(decide)
        self._runtime.log.warning("the certificates of a node were revoked", node=node)

    def certificates(self, role: str, name: str) -> list[CertificateView]:
        """All that are kept; of that role and name only, where these are not empty."""
        rows = self._membership.certificates()
        return [_certificate_view(row) for row in rows if role in ("", row.role) and name in ("", row.node)]

    async def revoke(self, role: str, name: str) -> list[CertificateView]:
        """Revoke the certificates of a process of another role than agent: they are not renewed any more.

        Raises:
            SpecError: it is a node's.
            NotFoundError: it has none.
        """
        if role == Role.AGENT:
            raise SpecError("role: certificates of a node are revoked as the node's", hint=f"hal node revoke {name}")

        def decide(now_ms: int) -> PutJoining:
            change = self._membership.revoke(name, now_ms, role)
            if not change.certificates:
                whose = f"{one_line(role, MAX_LABEL)} '{one_line(name, MAX_LABEL)}'"
                raise NotFoundError(
                    f"{whose} has no certificate that could be revoked", hint="`hal certificate list` shows all"
                )
            return change

        made = await self._commit(decide)
        self._runtime.log.warning("certificates were revoked", role=role, name=name)
        return [_certificate_view(row) for row in made.certificates]

    def end_membership(self, nodes: Sequence[str], now_ms: int) -> None:
        """End the certificates of these nodes, within the group that removes them."""
        for node in nodes:
            change = self._membership.revoke(node, now_ms)
            if change.certificates:
                self._joining.use().stage(change)

    # ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, connection: Connection, node: str) -> None:
        """Whether whoever is there may speak as `node`; on a Unix socket the kernel has said so already.

        Raises:
            DeniedError: it may not.
        """
        if connection.peer is not None:
            return
        certified = connection.certified
        if certified is None:
            raise DeniedError("without a certificate nothing but joining is allowed", hint="hal agent --join TOKEN")
        if self._authority is not None:
            self._membership.check_certificate(certified, node, self._clock.now_ms())
        elif (certified.role, certified.name) != (Role.AGENT, node):
            raise DeniedError(f"a certificate of {certified.role} '{certified.name}' is not valid for node '{node}'")

    def address_of(self, connection: Connection, node: str, facts: Facts) -> tuple[str, str]:
        """Where other machines reach a node that says hello, and a remark for people if it is not what it stated.

        A node of the controller's own machine is believed. One that joined may state an address that hal.toml allows
        (`server.node_addresses`) and that no other node has; otherwise it is where its connection comes from.
        """
        stated = facts.address if is_node_address(facts.address) else ""
        if connection.peer is not None:
            here = (stated, self._config.address, facts.host)
            return next((one for one in here if is_node_address(one)), ""), ""
        seen = connection.remote
        if not facts.address or (stated and same_address(stated, seen)):
            return seen, ""
        if not stated or not may_state(stated, self._config.node_addresses):
            why = "server.node_addresses of the controller's hal.toml does not allow it"
        elif (other := self._node_at(stated, node)) is not None:
            why = f"it is the address of node '{other}'"
        else:
            return stated, ""
        return seen, f"address {facts.address} is not used, but {seen}: {why}"

    def _node_at(self, address: str, node: str) -> str | None:
        """Another node that is reached at this address."""
        others = (row for row in self._plane.nodes.values() if row.name != node and row.state is not NodeState.REMOVED)
        return next((row.name for row in others if same_address(row.about.facts.address, address)), None)

    def check_same(self, connection: Connection, node: str, facts: Facts, boot_id: str) -> None:
        """Whether a node of a controller's own machine is the one known by that name; others have a certificate.

        One whose word was removed is still the same while its HAL_HOME is the same directory in the same boot: what
        the keeper of that home, or its successor, holds is what is known to run there.

        Raises:
            ConflictError: it is another one, whose processes are not those that are known to run there.
        """
        row = self._plane.nodes.get(node)
        if connection.certified is not None or row is None or row.state in (NodeState.REMOVED, NodeState.DOWN):
            return
        known = row.about.facts
        certified = self._membership.has_certificate(node, self._clock.now_ms())
        if certified or (facts.node_id and known.node_id and facts.node_id != known.node_id):
            if not certified and facts.home_id and (facts.home_id, boot_id) == (known.home_id, row.boot_id):
                self._logs.of(node).warning("a node has lost its id and was recognised by its home", node=node)
                return
            raise ConflictError(
                f"there is a node '{node}' already, in another HAL_HOME or on another machine (or this is that node, "
                f"whose file nodes/{node}/id was removed)",
                hint=f"give this one another name (hal up --name); or, when nothing of that one runs any more: "
                f"hal node fence {node}",
            )

    def labels_of(self, connection: Connection) -> dict[str, str]:
        """Labels that the node has because of the token with which it joined, whatever its agent says."""
        certified = connection.certified
        return {} if certified is None else self._membership.labels_of(certified.serial)

    async def serve_stranger(
        self, connection: Connection, frame: ReadAuthority | Join | Renew | CheckCertificates
    ) -> None:
        """One that has no certificate yet, and asks for the authority's, or joins; or one that came to renew its own,
        or asks which ones of its peers are good.

        Raises:
            DeniedError: it may not; says why.
            HALError: it cannot now.
        """
        authority = self._listening()
        if isinstance(frame, ReadAuthority):
            await connection.send(AuthorityFrame(certificate=authority.pem))
            return
        if isinstance(frame, Renew):
            certified = connection.certified
            if certified is None:
                raise DeniedError("without a certificate there is nothing to renew", hint="join with a token")
            await self._renew(connection, certified.role, certified.name, frame)
            return
        if isinstance(frame, CheckCertificates):
            await self._check_peers(connection, frame)
            return
        agree_version(frame.versions)
        name = check_node_name(frame.name)
        token_id, dot, secret = frame.token.partition(".")
        if not dot or len(frame.token) > MAX_TOKEN_CHARS:
            raise MalformedFrameError("a join token is ID.SECRET")
        issued: list[Issued] = []

        def decide(now_ms: int) -> PutJoining:
            issued.clear()  # a group that failed for something else is decided again
            known = frame.role is Role.AGENT and self._known(name)
            token = self._membership.check_token(token_id, secret, name, now_ms, known=known, role=frame.role)
            issued.append(self._certify(authority, frame.request, frame.role, name))
            row = _certificate_row(issued[0], frame.role, name, now_ms)
            return self._membership.admitted(token, row, now_ms, self._known)

        await self._commit(decide)
        log, at = self._runtime.log, connection.label
        log.info("a certificate was given", role=frame.role, name=name, token=token_id, connection=at)
        await connection.send(_joined(issued[0], frame.role, name, authority))

    async def renew(self, connection: Connection, node: str, frame: Renew) -> None:
        """The next certificate of a node that speaks already.

        Raises:
            DeniedError: its present one is no longer good, or it came over a Unix socket and has none.
        """
        await self._renew(connection, Role.AGENT, node, frame)

    async def _check_peers(self, connection: Connection, frame: CheckCertificates) -> None:
        """Raises:
        DeniedError: the certificate of who asks is not good itself.
        """
        asking, now_ms = connection.certified, self._clock.now_ms()
        if asking is None:
            raise DeniedError("without a certificate there are no peers to ask about", hint="join with a token")
        self._membership.check_certificate(asking, asking.name, now_ms, asking.role)
        refused = tuple(serial for serial in frame.serials if not self._membership.is_good(serial, now_ms))
        await connection.send(CertificatesRefused(serials=refused))

    async def _renew(self, connection: Connection, role: str, name: str, frame: Renew) -> None:
        authority = self._listening()
        certified = connection.certified
        if certified is None:
            raise DeniedError("a node of this machine has no certificate to renew")
        issued: list[Issued] = []

        def decide(now_ms: int) -> PutJoining:
            issued.clear()
            self._membership.check_certificate(certified, name, self._clock.now_ms(), role)
            issued.append(self._certify(authority, frame.request, Role(role), name))
            row = _certificate_row(issued[0], role, name, now_ms)
            return self._membership.renewed(row, certified.serial, now_ms)

        await self._commit(decide)
        connection.send_nowait(_joined(issued[0], Role(role), name, authority))

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _listening(self) -> Authority:
        if self._authority is None:
            raise ConflictError(
                "this HAL does not listen for agents of other machines",
                hint="restart its controller (jobs continue): hal down --leave; hal up --wire 0.0.0.0",
            )
        return self._authority

    def _known(self, node: str) -> bool:
        row = self._plane.nodes.get(node)
        return row is not None and row.state is not NodeState.REMOVED

    def _certify(self, authority: Authority, request: str, role: Role, name: str) -> Issued:
        config = self._config
        life_ms = config.node_certificate_ms if role is Role.AGENT else config.service_certificate_ms
        # By the clock on the wall: whoever verifies has no other.
        return authority.certify(request, role, name, self._runtime.now_ms(), life_ms)

    async def _commit(self, decide: Callable[[int], PutJoining]) -> PutJoining:
        """Have it decided in its turn and made durable.

        Raises:
            HALError: it was refused, or could not be made durable; nothing has changed.
        """
        return await self._inbox().call(lambda now_ms: self._joining.use().stage(decide(now_ms)))


def _token_view(row: JoinTokenRow, now_ms: int) -> JoinTokenView:
    return JoinTokenView(
        id=row.id,
        state=state_of(row, now_ms),
        role=row.role,
        node=row.node,
        user=row.user,
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        used_by=row.used_by,
        uses=row.uses,
        used=row.used,
        labels=row.labels,
    )


def _certificate_view(row: CertificateRow) -> CertificateView:
    return CertificateView(
        serial=row.serial,
        role=row.role,
        name=row.node,
        issued_ms=row.issued_ms,
        expires_ms=row.expires_ms,
        revoked_ms=row.revoked_ms,
        token=row.token,
    )


def _certificate_row(issued: Issued, role: str, name: str, now_ms: int) -> CertificateRow:
    return CertificateRow(serial=issued.serial, node=name, issued_ms=now_ms, expires_ms=issued.expires_ms, role=role)


def _joined(issued: Issued, role: Role, name: str, authority: Authority) -> Joined:
    return Joined(
        name=name, certificate=issued.certificate, authority=authority.pem, expires_ms=issued.expires_ms, role=role
    )
