"""API tokens: how they look, what is kept of them, and which one a request shows.

Pure; chance and time are passed in. A token is `hal_ID_SECRET`. Only a SHA-256 of the secret is kept: it is 256 random
bits, so there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import SpecError
from hal.daemons.controller.access.stored_entries import read_entries
from hal.rest.identity import NO_SCOPE, Scope
from hal.rest.rights import Role

PREFIX: Final = "hal"
META: Final = "api-token/"
"""Before the id: the key of its row in the store."""
MAX_TOKENS: Final = 1_000
"""Kept at once, revoked ones that have not expired included; without those of logins."""
MAX_LOGINS: Final = 10_000
"""Tokens of logins kept at once."""
MAX_LOGINS_OF_ONE: Final = 20
"""Of one user; a further login ends the oldest."""
MAX_SHOWN_CHARS: Final = 200
"""Longest text that is looked at as a token."""
USE_STEP_MS: Final = 3_600_000
"""The last use is kept to the hour."""
MIN_LIFE_MS: Final = 1_000
ID_DIGITS: Final = 12


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of one."""

    id: str
    digest: str
    """SHA-256 of the secret, hex."""
    user: str
    role: Role
    created_ms: int
    expires_ms: int
    created_by: str = ""
    note: str = ""
    scope: Scope = NO_SCOPE
    revoked_ms: int | None = None
    used_ms: int | None = None
    """Beginning of the hour in which it was last used."""
    login: bool = False
    """A login made it, by the word of an OpenID Connect provider; it is forgotten at its end."""

    def live(self, now_ms: int) -> bool:
        """Whether the token is valid."""
        return self.revoked_ms is None and now_ms < self.expires_ms


def secret_text(token_id: str, secret: str) -> str:
    """The token as it is shown once and then sent."""
    return f"{PREFIX}_{token_id}_{secret}"


def digest_of(secret: str) -> str:
    """What is kept of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class TokenBook:
    """All tokens of one HAL, in memory; the rows of the store say the same."""

    def __init__(self) -> None:
        self._by_id: dict[str, Token] = {}
        self._watchers: dict[object, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def load(self, meta: Mapping[str, str]) -> None:
        """Take what the store holds, in place of what was known.

        Raises:
            StoreError: a row is not a token.
        """
        self._by_id = {token.id: token for token in read_entries(meta, META, Token, "token")}
        self._changed()

    def put(self, token: Token) -> None:
        """Keep the token as it is durable now."""
        self._by_id[token.id] = token
        if token.revoked_ms is not None:
            self._changed()

    def drop(self, ids: Iterable[str]) -> None:
        """Forget these tokens, whose rows were removed."""
        dropped = [one for one in ids if self._by_id.pop(one, None) is not None]
        if dropped:
            self._changed()

    @contextmanager
    def watched(self, changed: Callable[[], None]) -> Iterator[None]:
        """Within this context `changed` is called whenever a token may have become invalid before its end."""
        key = object()
        self._watchers[key] = changed
        try:
            yield
        finally:
            del self._watchers[key]

    def _changed(self) -> None:
        for watcher in list(self._watchers.values()):
            watcher()

    def get(self, token_id: str) -> Token | None:
        """By id."""
        return self._by_id.get(token_id)

    def all(self) -> list[Token]:
        """Newest first."""
        return sorted(self._by_id.values(), key=lambda token: (-token.created_ms, token.id))

    def expired(self, now_ms: int) -> list[str]:
        """Ids of those that expired."""
        return [token.id for token in self._by_id.values() if token.expires_ms <= now_ms]

    def logins(self, user: str = "") -> list[Token]:
        """Those that logins made, of one user or of all, oldest first."""
        found = [token for token in self._by_id.values() if token.login and token.user == (user or token.user)]
        return sorted(found, key=lambda token: (token.created_ms, token.id))

    def shown(self, text: str) -> Token | None:
        """The token whose text that is, live or not; None: there is none, or the secret is another."""
        if len(text) > MAX_SHOWN_CHARS:
            return None
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._by_id.get(token_id) if prefix == PREFIX else None
        kept = token.digest if token is not None else ""
        same = hmac.compare_digest(digest_of(secret), kept)
        return token if same else None

    def use_is_news(self, token: Token, now_ms: int) -> Token | None:
        """The token with this use noted, when that says anything new."""
        hour = now_ms - now_ms % USE_STEP_MS
        return None if token.used_ms == hour else replace(token, used_ms=hour)


def row_of(token: Token) -> dict[str, str]:
    """Its row in the store."""
    return {META + token.id: msgspec.json.encode(token).decode()}


def check_new(*, note: str, scope: Scope, life_ms: int, most_ms: int) -> None:
    """Check what is asked for a new token.

    Raises:
        SpecError: it does not; names the field.
    """
    if not MIN_LIFE_MS <= life_ms <= most_ms:
        raise SpecError(
            f"expires_in: out of range: at most {most_ms // 86_400_000} days, and no longer than the token that asks",
            hint="write 30d; hal.toml: access.max_token_days",
        )
    if len(note) > MAX_SHOWN_CHARS:
        raise SpecError(f"note: longer than {MAX_SHOWN_CHARS} characters")
    for name, values in (("accounts", scope.accounts), ("queues", scope.queues)):
        if len(values) > MAX_SHOWN_CHARS or any(not value or len(value) > MAX_SHOWN_CHARS for value in values):
            raise SpecError(f"{name}: an empty or too long name, or too many")
