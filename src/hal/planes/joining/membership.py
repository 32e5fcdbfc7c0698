"""Join tokens and certificates as they are in memory, and the rules about them: of nodes, and of the other roles.

A change is decided as a row operation; `apply` makes it in memory, and returns what undoes it if the commit fails.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from hal.core.model import (
    ConflictError,
    DeniedError,
    NotFoundError,
    OverloadedError,
    SpecError,
    format_duration,
    shown,
)
from hal.core.model.node_config import check_labels
from hal.store.operations import AGENT, CertificateRow, JoinTokenRow, PutJoining
from hal.wire.peer import CertifiedName
from hal.wire.roles import ON_REQUEST, Role

MAX_TOKENS: Final = 1_000
"""Tokens that wait to be used."""
MAX_LIFE_MS: Final = 7 * 86_400_000
"""Longest life of a token."""
MIN_LIFE_MS: Final = 1_000
MAX_USES: Final = 10_000
"""Machines that can join with one token; also with one for any number of them."""
KEPT_MS: Final = 86_400_000
"""How long a token or a certificate that cannot be used any more is kept, so that whoever tries it gets the reason."""
MAX_ENDED: Final = 1_000
"""So many of those at most; the oldest go first."""


class TokenState(StrEnum):
    """The state of a token."""

    OPEN = "open"
    USED = "used"
    EXPIRED = "expired"
    REVOKED = "revoked"


def state_of(token: JoinTokenRow, now_ms: int) -> TokenState:
    """Return the state of a token now."""
    if token.used >= (token.uses or MAX_USES):
        return TokenState.USED
    if token.revoked_ms is not None:
        return TokenState.REVOKED
    return TokenState.EXPIRED if token.expires_ms <= now_ms else TokenState.OPEN


def hash_of(secret: str) -> str:
    """Hash a secret, as it is stored (128 random bits, so that one round is enough)."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Membership:
    """All tokens and certificates of one HAL."""

    def __init__(self) -> None:
        self._tokens: dict[str, JoinTokenRow] = {}
        self._certificates: dict[str, CertificateRow] = {}
        self._of: dict[tuple[str, str], set[str]] = {}
        """Serial numbers by role and name."""

    def load(self, rows: PutJoining) -> None:
        """Replace everything by what is durable."""
        self._tokens.clear()
        self._certificates.clear()
        self._of.clear()
        self.apply(rows)

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────

    def tokens(self) -> list[JoinTokenRow]:
        """All that are kept, oldest first."""
        return list(self._tokens.values())

    def create(
        self,
        token_id: str,
        secret_hash: str,
        *,
        node: str,
        life_ms: int,
        user: str,
        now_ms: int,
        uses: int = 1,
        labels: dict[str, str] | None = None,
        role: str = AGENT,
    ) -> PutJoining:
        """A new token.

        Args:
            node: the name under which alone may be joined, whatever the role; '': any new one.
            role: one of `ON_REQUEST`.
            uses: how many machines can join with it; 0: any number, until it expires.
            labels: that each of these nodes will have.
        Raises:
            SpecError: it would live too short or too long, be used too often, or has labels that cannot be given.
            OverloadedError: too many wait already.
        """
        if not 0 <= uses <= MAX_USES:
            raise SpecError(f"uses: {uses} is out of range", hint=f"1 to {MAX_USES}, or 0 for any number")
        if node and uses != 1:
            raise SpecError("uses: a token for one name is used once", hint="leave out the name, or uses")
        if role not in ON_REQUEST:
            raise SpecError(f"role: '{shown(role)}' gets no certificate", hint=f"one of {', '.join(ON_REQUEST)}")
        if role != AGENT and labels:
            raise SpecError("labels: only nodes have labels", hint=f"leave them out for the role {role}")
        if role == Role.CLIENT and not node:
            raise SpecError("name: a client speaks for a user: the token must name them", hint="--name USER")
        check_labels(labels or {}, "labels")
        if not MIN_LIFE_MS <= life_ms <= MAX_LIFE_MS:
            raise SpecError(
                f"expires_in: {format_duration(life_ms)} is out of range",
                hint=f"between {format_duration(MIN_LIFE_MS)} and {format_duration(MAX_LIFE_MS)}",
            )
        waiting = sum(state_of(token, now_ms) is TokenState.OPEN for token in self._tokens.values())
        if waiting >= MAX_TOKENS:
            raise OverloadedError(f"{waiting} join tokens are not used yet", hint="revoke some: hal token list")
        token = JoinTokenRow(
            id=token_id,
            secret_hash=secret_hash,
            node=node,
            user=user,
            created_ms=now_ms,
            expires_ms=now_ms + life_ms,
            uses=uses,
            labels=labels or {},
            role=role,
        )
        return PutJoining((token,), forget_tokens=self._old_tokens(now_ms))

    def revoke_token(self, token_id: str, now_ms: int) -> PutJoining:
        """Revoke a token: nobody can join with it any more.

        Raises:
            NotFoundError: there is no such token.
            ConflictError: it cannot be used anyway.
        """
        token = self._tokens.get(token_id)
        if token is None:
            raise NotFoundError(f"there is no join token '{shown(token_id)}'", hint="`hal token list` lists them")
        state = state_of(token, now_ms)
        if state is TokenState.USED:
            hint = f"`hal certificate revoke {token.role} {token.used_by}` revokes its certificates"
            if token.role == AGENT:
                hint = f"`hal node revoke {token.used_by}` revokes a node's certificates"
            raise ConflictError(f"token {token_id} was used: {_users(token)} joined with it", hint=hint)
        if state is not TokenState.OPEN:
            raise ConflictError(f"token {token_id} is {state} already")
        return PutJoining((replace(token, revoked_ms=now_ms),))

    def check_token(
        self, token_id: str, secret: str, node: str, now_ms: int, *, known: bool, role: str = AGENT
    ) -> JoinTokenRow:
        """Return the token, if a process of that role may join with it now under the name `node`.

        Args:
            known: a node of that name is known already; for agents only.
        Raises:
            DeniedError: it may not; says why.
            ConflictError: see `check_joins`.
        """
        again = f"ask for another: `hal token create{_role_option(role)}`"
        token = self._tokens.get(token_id)
        if token is None or not hmac.compare_digest(token.secret_hash, hash_of(secret)):
            raise DeniedError("this HAL does not know the join token", hint=again)
        if token.role != role:
            raise DeniedError(f"the join token {token_id} is for the role {token.role}, not {role}", hint=again)
        state = state_of(token, now_ms)
        if state is TokenState.USED:
            who = f"by {_users(token)}"
            often = "once" if token.uses == 1 else f"{token.uses or MAX_USES} times"
            raise DeniedError(
                f"the join token {token_id} was used already, {who}", hint=f"this token works {often}; {again}"
            )
        if state is not TokenState.OPEN:
            late = f" {format_duration(now_ms - token.expires_ms)} ago" if state is TokenState.EXPIRED else ""
            raise DeniedError(f"the join token {token_id} is {state}{late}", hint=again)
        if token.node and token.node != node:
            raise DeniedError(
                f"the join token {token_id} is for {_noun(role)} '{token.node}', not '{shown(node)}'",
                hint=f"join with --name {token.node}",
            )
        if (known or self.has_certificate(node, now_ms, role)) and not token.node:
            raise DeniedError(
                f"there is a {_noun(role)} '{shown(node)}' already",
                hint=f"choose another --name; to join as that {_noun(role)} again: {_again(role, node)}",
            )
        if role == AGENT:
            self.check_joins(node, known=known)
        return token

    def check_joins(self, node: str, *, known: bool) -> None:
        """A machine may have that name, which is new, or that of a node that has joined before.

        Raises:
            ConflictError: it is a node of a controller's own machine; two under one name would push each other out.
        """
        if known and not self._of.get((AGENT, node)):
            raise ConflictError(
                f"node '{shown(node)}' has not joined: it belongs to a controller's own machine (hal up)",
                hint="choose another name; or, if that node is gone: `hal node remove`, then join under its name",
            )

    # ── certificates ──────────────────────────────────────────────────────────────────────────────────────────────

    def admitted(
        self, token: JoinTokenRow, certificate: CertificateRow, now_ms: int, known: Callable[[str], bool]
    ) -> PutJoining:
        """Somebody has joined with that token; whatever was issued under the name before is of no more use.

        Rented machines come and go: what was issued to nodes that are not `known` any more, and is of no use, is
        forgotten. O(certificates).
        """
        used = replace(token, used_ms=now_ms, used_by=certificate.node, used=token.used + 1)
        certificate = replace(certificate, token=token.id, labels=token.labels, role=token.role)
        revoked = tuple(self._revoked(token.role, certificate.node, now_ms))
        old = [
            row.serial
            for row in self._certificates.values()
            if _useless_since(row) + KEPT_MS <= now_ms
            and _key(row) != _key(certificate)
            and not (row.role == AGENT and known(row.node))
        ]
        return PutJoining((used,), (*revoked, certificate), forget_certificates=tuple(old))

    def renewed(self, certificate: CertificateRow, before: str, now_ms: int) -> PutJoining:
        """The next certificate was given; the former stay valid, expired ones are forgotten.

        Args:
            before: serial of the one that it shows; what its token gave it stays.
        """
        expired = tuple(
            one for one in self._of.get(_key(certificate), ()) if self._certificates[one].expires_ms <= now_ms
        )
        shown_one = self._certificates.get(before)
        if shown_one is not None:
            certificate = replace(certificate, token=shown_one.token, labels=shown_one.labels)
        return PutJoining((), (certificate,), forget_certificates=expired)

    def labels_of(self, serial: str) -> dict[str, str]:
        """Labels that the node which shows this certificate has because of its token."""
        row = self._certificates.get(serial)
        return {} if row is None else row.labels

    def certificates(self) -> list[CertificateRow]:
        """All that are kept, by role, name and age."""
        return sorted(self._certificates.values(), key=lambda row: (row.role, row.node, row.issued_ms, row.serial))

    def revoke(self, node: str, now_ms: int, role: str = AGENT) -> PutJoining:
        """No certificate of that node, or of that name and role, is good any more; empty when it has none."""
        return PutJoining((), tuple(self._revoked(role, node, now_ms)))

    def has_certificate(self, node: str, now_ms: int, role: str = AGENT) -> bool:
        """Whether the node, or whoever has that name and role, has a valid certificate."""
        return any(self._valid(self._certificates[one], now_ms) for one in self._of.get((role, node), ()))

    def is_good(self, serial: str, now_ms: int) -> bool:
        """Whether a certificate was issued here, has not expired and was not revoked."""
        row = self._certificates.get(serial)
        return row is not None and self._valid(row, now_ms)

    def check_certificate(self, shown_one: CertifiedName, node: str, now_ms: int, role: str = AGENT) -> None:
        """Whether whoever shows this certificate may speak as `node`, in that role.

        Raises:
            DeniedError: it may not; says why.
        """
        if (shown_one.role, shown_one.name) != (role, node):
            of = f"a certificate of {_noun(shown_one.role)} '{shown(shown_one.name)}'"
            raise DeniedError(f"{of} is not valid for {_noun(role)} '{shown(node)}'")
        again, whose = f"join again: {_again(role, node)}", f"the certificate of {_noun(role)} '{node}'"
        row = self._certificates.get(shown_one.serial)
        if row is None or _key(row) != (role, node):
            raise DeniedError(
                f"{whose} ({shown(shown_one.serial)}) was not issued by this HAL's controller", hint=again
            )
        if row.revoked_ms is not None:
            raise DeniedError(f"{whose} was revoked", hint=again)
        if row.expires_ms <= now_ms:
            raise DeniedError(f"{whose} has expired", hint=again)

    # ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: PutJoining) -> PutJoining:
        """Make the change in memory; returns the change that undoes it."""
        tokens = {*(row.id for row in change.tokens), *change.forget_tokens}
        serials = {*(row.serial for row in change.certificates), *change.forget_certificates}
        undo = PutJoining(
            tuple(self._tokens[one] for one in sorted(tokens) if one in self._tokens),
            tuple(self._certificates[one] for one in sorted(serials) if one in self._certificates),
            tuple(one for one in sorted(tokens) if one not in self._tokens),
            tuple(one for one in sorted(serials) if one not in self._certificates),
        )
        for token in change.tokens:
            self._tokens[token.id] = token
        for gone in change.forget_tokens:
            self._tokens.pop(gone, None)
        for row in change.certificates:
            self._certificates[row.serial] = row
            self._of.setdefault(_key(row), set()).add(row.serial)
        for gone in change.forget_certificates:
            forgotten = self._certificates.pop(gone, None)
            if forgotten is not None:
                self._of[_key(forgotten)].discard(gone)
                if not self._of[_key(forgotten)]:
                    del self._of[_key(forgotten)]
        return undo

    def _revoked(self, role: str, node: str, now_ms: int) -> Iterator[CertificateRow]:
        for serial in sorted(self._of.get((role, node), ())):
            row = self._certificates[serial]
            if self._valid(row, now_ms):
                yield replace(row, revoked_ms=now_ms)

    def _valid(self, row: CertificateRow, now_ms: int) -> bool:
        return row.revoked_ms is None and row.expires_ms > now_ms

    def _old_tokens(self, now_ms: int) -> tuple[str, ...]:
        """Ended tokens that need not be listed any more."""
        ended = [token for token in self._tokens.values() if state_of(token, now_ms) is not TokenState.OPEN]
        old = [token.id for token in ended if _ended_ms(token) + KEPT_MS <= now_ms]
        return tuple(dict.fromkeys([*old, *(token.id for token in ended[: max(0, len(ended) - MAX_ENDED)])]))


def _key(row: CertificateRow) -> tuple[str, str]:
    return row.role, row.node


def _noun(role: str) -> str:
    return "node" if role == AGENT else shown(role)


def _users(token: JoinTokenRow) -> str:
    """Who has joined with a token, for people."""
    if token.used == 1:
        return f"{_noun(token.role)} '{token.used_by}'"
    return f"{token.used} {_noun(token.role)}s"


def _role_option(role: str) -> str:
    return "" if role == AGENT else f" --role {role}"


def _again(role: str, name: str) -> str:
    option = "--node" if role == AGENT else "--name"
    return f"`hal token create{_role_option(role)} {option} {shown(name)}`"


def _useless_since(row: CertificateRow) -> int:
    return row.expires_ms if row.revoked_ms is None else min(row.revoked_ms, row.expires_ms)


def _ended_ms(token: JoinTokenRow) -> int:
    if token.used_ms is not None and token.used >= (token.uses or MAX_USES):
        return token.used_ms
    return token.expires_ms if token.revoked_ms is None else token.revoked_ms
