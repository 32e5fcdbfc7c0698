"""Secrets of users and accounts as they are stored: sealed, one row each; and who may use which.

Pure apart from randomness. Rules: a user's secret is used by that user's jobs alone; an account's by the jobs of a
closed account, so by the users that the account names. A user's own secret comes before one of the account with the
same name. Nobody reads a value back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from hal.core.model import NotFoundError
from hal.core.model.policy import Account, Policy
from hal.core.model.policy_delegation import coordinated_by
from hal.daemons.controller.access.secret_keys import KeyRing
from hal.daemons.controller.access.stored_entries import read_entries

META: Final = "secret/"
"""How the keys of its rows in the store begin."""
MAX_OF_ONE_OWNER: Final = 100
"""Secrets of one user, and of one account."""
MAX_SECRETS: Final = 10_000
MAX_SEALED_BYTES: Final = 64 << 20
"""All of them together."""


class OwnerKind(StrEnum):
    """What a secret belongs to."""

    USER = "user"
    ACCOUNT = "account"


class SecretId(NamedTuple):
    """Which secret it is."""

    kind: OwnerKind
    owner: str
    """Name of the user or account."""
    name: str

    def __str__(self) -> str:
        return f"secret '{self.name}' of {self.kind} '{self.owner}'"


class Secret(Struct, frozen=True, kw_only=True):
    """One stored secret."""

    kind: OwnerKind
    owner: str
    name: str
    version: int
    """1, and one more each time it is replaced."""
    key: str
    """Id of the key that sealed it."""
    sealed: bytes
    """Nonce and ciphertext."""
    set_ms: int
    set_by: str

    @property
    def id(self) -> SecretId:
        """Which it is."""
        return SecretId(self.kind, self.owner, self.name)


class SecretBook:
    """All secrets of one HAL, sealed, in memory; the rows of the store say the same."""

    def __init__(self) -> None:
        self._by_id: dict[SecretId, Secret] = {}
        self.ring = KeyRing()
        """The keys of this controller."""

    def __len__(self) -> int:
        return len(self._by_id)

    def load(self, meta: Mapping[str, str]) -> None:
        """Take what the store holds, in place of what was known.

        Raises:
            StoreError: a row is not a secret.
        """
        self._by_id = {secret.id: secret for secret in read_entries(meta, META, Secret, "secret")}

    def put(self, secret: Secret) -> None:
        """Keep the secret as it is durable now."""
        self._by_id[secret.id] = secret

    def drop(self, which: SecretId) -> None:
        """Forget it; its row was removed."""
        self._by_id.pop(which, None)

    def get(self, which: SecretId) -> Secret | None:
        """By id."""
        return self._by_id.get(which)

    def all(self) -> list[Secret]:
        """By owner and name."""
        return [self._by_id[which] for which in sorted(self._by_id)]

    def of(self, kind: OwnerKind, owner: str) -> list[Secret]:
        """Those of one owner, by name."""
        return [one for one in self.all() if (one.kind, one.owner) == (kind, owner)]

    @property
    def sealed_bytes(self) -> int:
        """Length of all of them."""
        return sum(len(one.sealed) for one in self._by_id.values())

    def foreign_keys(self) -> set[str]:
        """Ids of keys that something is stored under and that this controller lacks."""
        return {one.key for one in self._by_id.values()} - self.ring.keys.keys()

    def find(self, name: str, *, user: str, account: str, accounts: Mapping[str, Account]) -> Secret:
        """The secret that a job of that user in that account means by a name.

        Raises:
            NotFoundError: there is none that it may use.
        """
        for which in candidates(name, user=user, account=account, accounts=accounts):
            found = self._by_id.get(which)
            if found is not None:
                return found
        closed = f", nor account '{account}'" if is_closed(account, accounts) else ""
        raise NotFoundError(
            f"secrets: user '{user}' has no secret '{name}'{closed}",
            hint=f"hal secret set {name}; `hal secret list` lists those that you may use",
        )

    def value(self, secret: Secret) -> bytes:
        """Its value.

        Raises:
            SealError: it cannot be opened.
        """
        return self.ring.open(secret.key, secret.sealed, about(secret.id, secret.version, secret.key))

    def sealed(
        self, which: SecretId, value: bytes, *, version: int, now_ms: int, by: str, new_id: Callable[[], str]
    ) -> Secret:
        """The value, sealed with the current key; `new_id` as for `KeyRing.seal`."""
        key, sealed = self.ring.seal(value, about(which, version, self.ring.current), new_id)
        return Secret(
            kind=which.kind,
            owner=which.owner,
            name=which.name,
            version=version,
            key=key,
            sealed=sealed,
            set_ms=now_ms,
            set_by=by,
        )


def candidates(name: str, *, user: str, account: str, accounts: Mapping[str, Account]) -> Iterator[SecretId]:
    """What a job may mean by a name, the first that exists counts."""
    yield SecretId(OwnerKind.USER, user, name)
    if is_closed(account, accounts) and user in accounts[account].users:
        yield SecretId(OwnerKind.ACCOUNT, account, name)


def is_closed(account: str, accounts: Mapping[str, Account]) -> bool:
    """Whether the account is closed: only the users that it names submit in it."""
    found = accounts.get(account)
    return found is not None and found.closed


def about(which: SecretId, version: int, key: str) -> bytes:
    """What a sealed value is bound to: under another name, owner, version or key it does not open."""
    return msgspec.json.encode(("hal-secret", 1, which.kind, which.owner, which.name, version, key))


def row_of(secret: Secret) -> dict[str, str]:
    """Its row in the store."""
    return {row_key(secret.id): msgspec.json.encode(secret).decode()}


def row_key(which: SecretId) -> str:
    """The key of its row: unique, for a name of a secret has no slash."""
    return f"{META}{which.kind}/{which.owner}/{which.name}"


def coordinated(secrets: Iterable[Secret], user: str, policy: Policy) -> list[Secret]:
    """Those of the accounts that this user coordinates."""
    return [one for one in secrets if one.kind is OwnerKind.ACCOUNT and coordinated_by(policy, user, one.owner)]


def usable(secrets: Iterable[Secret], user: str, accounts: Mapping[str, Account]) -> list[Secret]:
    """Those that jobs of this user may use in some account."""
    return [
        one
        for one in secrets
        if (one.kind is OwnerKind.USER and one.owner == user)
        or (one.kind is OwnerKind.ACCOUNT and is_closed(one.owner, accounts) and user in accounts[one.owner].users)
    ]
