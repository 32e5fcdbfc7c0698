"""API tokens: making, listing, revoking them, and noting when they were used.

A token is in force, or revoked, once its row is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import UnsetType
from msgspec.structs import replace

from hal.core.model import HALError, NotFoundError, OverloadedError, SpecError, shown
from hal.core.model.job import is_name
from hal.core.model.step_token import AttemptName
from hal.daemons.controller.access.step_credentials import RunningStep, StepCredentials
from hal.daemons.controller.access.tokens import (
    ID_DIGITS,
    MAX_LOGINS,
    MAX_LOGINS_OF_ONE,
    MAX_TOKENS,
    META,
    Token,
    TokenBook,
    check_new,
    digest_of,
    row_of,
    secret_text,
)
from hal.daemons.controller.service.access.views import TokenBody, TokenMade, TokenView, token_view
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter
from hal.rest.identity import Scope
from hal.rest.rights import Role
from hal.store import PutMeta

DAY_MS = 86_400_000
DEFAULT_LIFE_MS = 30 * DAY_MS
LOGIN_NOTE = "login"
KEPT_MS = 30 * DAY_MS
"""How long an expired token is still listed."""


class Tokens:
    """Of people and programs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._keeping = asyncio.Lock()

    @property
    def book(self) -> TokenBook:
        """All tokens, for whoever looks at what a request shows."""
        return self._parts.tokens

    @property
    def step_credentials(self) -> StepCredentials:
        """Knows the steps that run."""
        plane = self._parts.plane
        return StepCredentials(lambda: plane.instance, lambda: plane.step_secret, self._running_step)

    def _running_step(self, name: AttemptName) -> RunningStep | None:
        job = self._parts.plane.job(name.job)
        attempt = job.active.get(name.task) if job is not None else None
        if job is None or attempt is None or attempt.attempt != name.attempt:
            return None
        return RunningStep(attempt.token, job.user, job.queue, job.account)

    async def create(self, asked: TokenBody, by: Submitter, until_ms: int | None = None) -> TokenMade:
        """Create a token; its secret is in the answer and nowhere else.

        Args:
            until_ms: end of the token that asks for it, which it does not outlive.
        Raises:
            SpecError: what is asked for makes no sense.
            OverloadedError: there are too many.
            StoreError: it could not be made durable; there is no token.
        """
        if not is_name(asked.user):
            raise SpecError(f"user: '{shown(asked.user)}' is not a user's name")
        scope = Scope(accounts=asked.accounts, queues=asked.queues, read_only=asked.read_only)
        most_ms = self._parts.access.max_token_days * DAY_MS
        if until_ms is not None:
            most_ms = min(most_ms, until_ms - self._parts.clock.now_ms())
        life_ms = min(DEFAULT_LIFE_MS, most_ms) if isinstance(asked.expires_in, UnsetType) else int(asked.expires_in)
        check_new(note=asked.note, scope=scope, life_ms=life_ms, most_ms=most_ms)
        now_ms, book, runtime = self._parts.clock.now_ms(), self._parts.tokens, self._parts.runtime
        old = book.expired(now_ms - KEPT_MS)
        if len(book) - len(old) - len(book.logins()) >= MAX_TOKENS:
            raise OverloadedError(f"there are {MAX_TOKENS} tokens", hint="tokens are removed a month after they expire")
        secret = runtime.new_id() + runtime.new_id()
        token = Token(
            id=runtime.new_id()[:ID_DIGITS],
            digest=digest_of(secret),
            user=asked.user,
            role=asked.role,
            created_ms=now_ms,
            expires_ms=now_ms + life_ms,
            created_by=by.user,
            note=asked.note,
            scope=scope,
        )
        await self._keep(token.id, lambda _: token, old)
        book.drop(old)
        return TokenMade(secret=secret_text(token.id, secret), token=token_view(token, now_ms))

    async def create_login(self, user: str, role: Role, life_ms: int) -> TokenMade:
        """Create the token of a login; the oldest of the same user goes where there are too many.

        Raises:
            OverloadedError: there are too many of all users.
            StoreError: it could not be made durable; there is no token.
        """
        now_ms, book, runtime = self._parts.clock.now_ms(), self._parts.tokens, self._parts.runtime
        all_of_them = book.logins()
        old = [token.id for token in all_of_them if not token.live(now_ms)]
        own = [token.id for token in all_of_them if token.user == user and token.live(now_ms)]
        old += own[: max(len(own) + 1 - MAX_LOGINS_OF_ONE, 0)]
        if len(all_of_them) - len(old) >= MAX_LOGINS:
            raise OverloadedError(f"{MAX_LOGINS} people are logged in", hint="try again later")
        secret = runtime.new_id() + runtime.new_id()
        token = Token(
            id=runtime.new_id()[:ID_DIGITS],
            digest=digest_of(secret),
            user=user,
            role=role,
            created_ms=now_ms,
            expires_ms=now_ms + life_ms,
            created_by=user,
            note=LOGIN_NOTE,
            login=True,
        )
        await self._keep(token.id, lambda _: token, old)
        book.drop(old)
        return TokenMade(secret=secret_text(token.id, secret), token=token_view(token, now_ms))

    def all(self) -> list[TokenView]:
        """All that are kept, newest first."""
        now_ms = self._parts.clock.now_ms()
        return [token_view(token, now_ms) for token in self._parts.tokens.all()]

    async def revoke(self, token_id: str) -> TokenView:
        """Revoke a token; revoking it twice does nothing more.

        Raises:
            NotFoundError: there is none of that id.
        """
        now_ms = self._parts.clock.now_ms()
        token = self._parts.tokens.get(token_id)
        if token is None:
            raise NotFoundError(f"there is no token '{shown(token_id)}'", hint="`hal api-token list` lists them")
        if token.revoked_ms is None:
            revoked = await self._keep(token_id, lambda known: known and replace(known, revoked_ms=now_ms))
            token = revoked or token
        return token_view(token, now_ms)

    def note_use(self, token: Token) -> None:
        """Note it, to the hour; a row is written in the background, at most once an hour for each token."""
        used = self._parts.tokens.use_is_news(token, self._parts.clock.now_ms())
        if used is not None:
            self._parts.tokens.put(used)
            self._parts.runtime.spawn_task(self._keep_use(used.id), "token-use")

    async def _keep_use(self, token_id: str) -> None:
        try:
            await self._keep(token_id, lambda known: known)
        except HALError as error:
            self._parts.runtime.log.warning("the last use of a token was not kept", reason=str(error))

    async def _keep(
        self, token_id: str, make: Callable[[Token | None], Token | None], old: Sequence[str] = ()
    ) -> Token | None:
        """Make what is known of a token durable as `make` wants it; one after the other, so that no change is lost."""
        async with self._keeping:
            token = make(self._parts.tokens.get(token_id))
            if token is None:
                return None
            row = {**row_of(token), **{META + one: None for one in old}}
            await self._parts.loop.inbox.call(lambda _: self._parts.plane.add_operations(PutMeta(row)))
            self._parts.tokens.put(token)
            return token
