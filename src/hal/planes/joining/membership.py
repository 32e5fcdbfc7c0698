"""Join tokens and certificates as they are in memory, and the rules about them.

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
from hal.store.operations import CertificateRow, JoinTokenRow, PutJoining

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
        self._of_node: dict[str, set[str]] = {}

    def load(self, rows: PutJoining) -> None:
        """Replace everything by what is durable."""
        self._tokens.clear()
        self._certificates.clear()
        self._of_node.clear()
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
    ) -> PutJoining:
        """A new token.

        Args:
            uses: how many machines can join with it; 0: any number, until it expires.
            labels: that each of these nodes will have.
        Raises:
            SpecError: it would live too short or too long, be used too often, or has labels that cannot be given.
            OverloadedError: too many wait already.
        """
        if not 0 <= uses <= MAX_USES:
            raise SpecError(f"uses: {uses} is out of range", hint=f"1 to {MAX_USES}, or 0 for any number")
        if node and uses != 1:
            raise SpecError("uses: a token for one node is used once", hint="leave out the node, or uses")
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
            who = f"node '{token.used_by}'" if token.used == 1 else f"{token.used} nodes"
            raise ConflictError(
                f"token {token_id} was used: {who} joined with it",
                hint=f"`hal node revoke {token.used_by}` revokes a node's certificates",
            )
        if state is not TokenState.OPEN:
            raise ConflictError(f"token {token_id} is {state} already")
        return PutJoining((replace(token, revoked_ms=now_ms),))

    def check_token(self, token_id: str, secret: str, node: str, now_ms: int, *, known: bool) -> JoinTokenRow:
        """Return the token, if `node` may join with it now.

        Args:
            known: a node of that name is known already.
        Raises:
            DeniedError: it may not; says why.
            ConflictError: see `check_joins`.
        """
        again = "ask for another: `hal token create`"
        token = self._tokens.get(token_id)
        if token is None or not hmac.compare_digest(token.secret_hash, hash_of(secret)):
            raise DeniedError("this HAL does not know the join token", hint=again)
        state = state_of(token, now_ms)
        if state is TokenState.USED:
            who = f"by node '{token.used_by}'" if token.used == 1 else f"by {token.used} nodes"
            often = "once" if token.uses == 1 else f"{token.uses or MAX_USES} times"
            raise DeniedError(
                f"the join token {token_id} was used already, {who}", hint=f"this token works {often}; {again}"
            )
        if state is not TokenState.OPEN:
            late = f" {format_duration(now_ms - token.expires_ms)} ago" if state is TokenState.EXPIRED else ""
            raise DeniedError(f"the join token {token_id} is {state}{late}", hint=again)
        if token.node and token.node != node:
            raise DeniedError(
                f"the join token {token_id} is for node '{token.node}', not '{shown(node)}'",
                hint=f"join with --name {token.node}",
            )
        taken = known or any(self._valid(self._certificates[one], now_ms) for one in self._of_node.get(node, ()))
        if taken and not token.node:
            raise DeniedError(
                f"there is a node '{shown(node)}' already",
                hint=f"choose another --name; to join as that node again: `hal token create --node {shown(node)}`",
            )
        self.check_joins(node, known=known)
        return token

    def check_joins(self, node: str, *, known: bool) -> None:
        """A machine may have that name, which is new, or that of a node that has joined before.

        Raises:
            ConflictError: it is a node of a controller's own machine; two under one name would push each other out.
        """
        if known and not self._of_node.get(node):
            raise ConflictError(
                f"node '{shown(node)}' has not joined: it belongs to a controller's own machine (hal up)",
                hint="choose another name; or, if that node is gone: `hal node remove`, then join under its name",
            )

    # ── certificates ──────────────────────────────────────────────────────────────────────────────────────────────

    def admitted(
        self, token: JoinTokenRow, certificate: CertificateRow, now_ms: int, known: Callable[[str], bool]
    ) -> PutJoining:
        """The node has joined with that token; whatever was issued to it before is of no more use.

        Rented machines come and go: what was issued to nodes that are not `known` any more, and is of no use, is
        forgotten. O(certificates).
        """
        used = replace(token, used_ms=now_ms, used_by=certificate.node, used=token.used + 1)
        certificate = replace(certificate, token=token.id, labels=token.labels)
        revoked = tuple(self._revoked(certificate.node, now_ms))
        old = [
            row.serial
            for row in self._certificates.values()
            if _useless_since(row) + KEPT_MS <= now_ms and row.node != certificate.node and not known(row.node)
        ]
        return PutJoining((used,), (*revoked, certificate), forget_certificates=tuple(old))

    def renewed(self, certificate: CertificateRow, before: str, now_ms: int) -> PutJoining:
        """A node was given its next certificate; the former stay valid, expired ones are forgotten.

        Args:
            before: serial of the one that it shows; what its token gave it stays.
        """
        expired = tuple(
            one for one in self._of_node.get(certificate.node, ()) if self._certificates[one].expires_ms <= now_ms
        )
        shown_one = self._certificates.get(before)
        if shown_one is not None:
            certificate = replace(certificate, token=shown_one.token, labels=shown_one.labels)
        return PutJoining((), (certificate,), forget_certificates=expired)

    def labels_of(self, serial: str) -> dict[str, str]:
        """Labels that the node which shows this certificate has because of its token."""
        row = self._certificates.get(serial)
        return {} if row is None else row.labels

    def revoke_node(self, node: str, now_ms: int) -> PutJoining:
        """No certificate of that node is good any more; empty when it has none."""
        return PutJoining((), tuple(self._revoked(node, now_ms)))

    def has_certificate(self, node: str, now_ms: int) -> bool:
        """Whether the node has a valid certificate, so that it may dial over the network."""
        return any(self._valid(self._certificates[one], now_ms) for one in self._of_node.get(node, ()))

    def check_certificate(self, serial: str, certified: str, node: str, now_ms: int) -> None:
        """Whether whoever shows this certificate may speak as `node`.

        Args:
            certified: the name in the certificate.
        Raises:
            DeniedError: it may not; says why.
        """
        if certified != node:
            raise DeniedError(f"a certificate of node '{shown(certified)}' is not valid for '{shown(node)}'")
        again = f"join again: `hal token create --node {node}`"
        row = self._certificates.get(serial)
        if row is None or row.node != node:
            raise DeniedError(f"the certificate {shown(serial)} was not issued by this HAL's controller", hint=again)
        if row.revoked_ms is not None:
            raise DeniedError(f"the certificate of node '{node}' was revoked", hint=again)
        if row.expires_ms <= now_ms:
            raise DeniedError(f"the certificate of node '{node}' has expired", hint=again)

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
            self._of_node.setdefault(row.node, set()).add(row.serial)
        for gone in change.forget_certificates:
            forgotten = self._certificates.pop(gone, None)
            if forgotten is not None:
                self._of_node[forgotten.node].discard(gone)
                if not self._of_node[forgotten.node]:
                    del self._of_node[forgotten.node]
        return undo

    def _revoked(self, node: str, now_ms: int) -> Iterator[CertificateRow]:
        for serial in sorted(self._of_node.get(node, ())):
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


def _useless_since(row: CertificateRow) -> int:
    return row.expires_ms if row.revoked_ms is None else min(row.revoked_ms, row.expires_ms)


def _ended_ms(token: JoinTokenRow) -> int:
    if token.used_ms is not None and token.used >= (token.uses or MAX_USES):
        return token.used_ms
    return token.expires_ms if token.revoked_ms is None else token.revoked_ms
