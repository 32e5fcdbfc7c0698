"""Secrets: setting, listing and removing them, checking what jobs name, and changing the key.

A secret is in force, or gone, once its row is durable. No call returns a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from hal.core.model import DeniedError, JobSpec, NotFoundError, OverloadedError, SpecError
from hal.core.model.policy import Account
from hal.core.model.secret import MAX_SECRET_BYTES, check_secret_name
from hal.daemons.controller.access.secret_keys import KeyRing, SealError, read_keys, write_keys
from hal.daemons.controller.access.secrets import (
    MAX_OF_ONE_OWNER,
    MAX_SEALED_BYTES,
    MAX_SECRETS,
    OwnerKind,
    Secret,
    SecretId,
    coordinated,
    is_closed,
    row_key,
    row_of,
    usable,
)
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Pace, Submitter
from hal.store import PutMeta

RESEALED_AT_ONCE = 32
"""Secrets that get another key in one commit: at most 2 MiB."""


class SecretBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a secret."""

    value: bytes
    """Base64; from 1 byte to 64 KiB."""


class SecretView(Struct, frozen=True, kw_only=True):
    """A secret, without its value."""

    name: str
    user: str
    """Whose jobs may use it; empty: those of the account."""
    account: str
    version: int
    """1, and one more each time it was replaced."""
    set_ms: int
    set_by: str


class SecretsList(Struct, frozen=True, kw_only=True):
    """Secrets, without their values, by owner and name."""

    secrets: list[SecretView]


class KeyChange(Struct, frozen=True, kw_only=True):
    """The result of a change of the key."""

    key: str
    """Id of the new key."""
    sealed: int
    """Secrets that are stored under it now."""
    left: int
    """Secrets that could not be opened and stay as they are; the controller's log names them."""


class Secrets:
    """Of users and accounts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._book = parts.secrets
        self._changing = asyncio.Lock()

    # ── change ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def set(self, which: SecretId, value: bytes, by: Submitter) -> SecretView:
        """Create or replace a secret.

        Raises:
            SpecError: its name or its size, or an account that is not closed.
            OverloadedError: there are too many.
            DeniedError: the file of keys cannot be used.
            StoreError: it could not be made durable; nothing was changed.
        """
        check_secret_name(which.name)
        if not 1 <= len(value) <= MAX_SECRET_BYTES:
            raise SpecError(f"value: {len(value)} bytes", hint=f"between 1 and {MAX_SECRET_BYTES} bytes")
        if which.kind is OwnerKind.ACCOUNT:
            self._check_account(which.owner)
        async with self._changing:
            former = self._book.get(which)
            if former is None:
                self._check_room(which, len(value))
            await self._prepare_key()
            version = former.version + 1 if former is not None else 1
            now_ms, new_id = self._parts.clock.now_ms(), self._parts.runtime.new_id
            secret = self._book.sealed(which, value, version=version, now_ms=now_ms, by=by.user, new_id=new_id)
            await self._write(row_of(secret))
            self._book.put(secret)
            return _view(secret)

    async def remove(self, which: SecretId) -> SecretView:
        """Remove a secret. Steps that have it keep it until they end; later starts of jobs that name it fail.

        Raises:
            NotFoundError: there is none.
        """
        async with self._changing:
            secret = self._book.get(which)
            if secret is None:
                raise NotFoundError(f"there is no {which}", hint="`hal secret list` lists those that there are")
            await self._write({row_key(which): None})
            self._book.drop(which)
            return _view(secret)

    async def rotate_key(self) -> KeyChange:
        """Create a new key, store every secret under it, and forget the others. If this is interrupted, both keys are
        kept, and the next rotation completes it.

        Raises:
            DeniedError: the file of keys cannot be used.
            StoreError: not everything could be stored.
        """
        async with self._changing:
            await self._prepare_key()
            await self._use(self._book.ring.with_new_key(self._parts.runtime.new_id))
            current, left = self._book.ring.current, 0
            waiting = [one for one in self._book.all() if one.key != current]
            for first in range(0, len(waiting), RESEALED_AT_ONCE):
                sealed = [self._resealed(one) for one in waiting[first : first + RESEALED_AT_ONCE]]
                again = [one for one in sealed if one is not None]
                left += len(sealed) - len(again)
                await self._write({key: text for one in again for key, text in row_of(one).items()})
                for one in again:
                    self._book.put(one)
            await self._use(self._book.ring.only({one.key for one in self._book.all()}))
            return KeyChange(key=current, sealed=len(self._book) - left, left=left)

    def _resealed(self, secret: Secret) -> Secret | None:
        try:
            value = self._book.value(secret)
        except SealError as error:
            self._parts.runtime.log.warning("a secret stays under its key", which=str(secret.id), reason=str(error))
            return None
        return self._book.sealed(
            secret.id,
            value,
            version=secret.version,
            now_ms=secret.set_ms,
            by=secret.set_by,
            new_id=self._parts.runtime.new_id,
        )

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def all(self) -> SecretsList:
        """All of them."""
        return SecretsList(secrets=[_view(one) for one in self._book.all()])

    def seen_by(self, user: str, *, coordinates: bool) -> SecretsList:
        """Those that this user's jobs may use; `coordinates`: and those that they may set for accounts."""
        found = {one.id: one for one in usable(self._book.all(), user, self._accounts)}
        if coordinates:
            found |= {one.id: one for one in coordinated(self._book.all(), user, self._parts.plane.policy)}
        return SecretsList(secrets=[_view(found[which]) for which in sorted(found)])

    async def check(self, specs: Sequence[JobSpec], by: Submitter) -> None:
        """Check what jobs name that are to be submitted.

        Raises:
            SpecError: there is no such secret that the job may use.
            DeniedError: it is submitted for somebody else, who would not know to what their secrets are given.
        """
        pace, seen = Pace(), set[int]()
        for spec in specs:
            if spec.secrets and id(spec) not in seen:
                seen.add(id(spec))
                self.check_one(spec, by)
            if pace.over():
                await self._parts.runtime.sleep(0)

    def check_one(self, spec: JobSpec, by: Submitter) -> None:
        """`check` of one job, in the loop."""
        if spec.user and spec.user != by.user:
            raise DeniedError(
                f"secrets: only '{spec.user}' submits jobs that use secrets of '{spec.user}'",
                hint="leave the secrets out, or the other user's name",
            )
        for name in spec.secrets:
            try:
                self._book.find(name, user=by.user, account=spec.account, accounts=self._accounts)
            except NotFoundError as error:
                raise SpecError(error.message, hint=error.hint) from None

    # ── private ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _accounts(self) -> Mapping[str, Account]:
        return self._parts.plane.policy.accounts

    def _check_account(self, account: str) -> None:
        if account not in self._accounts:
            raise SpecError(f"account: '{account}' is not an account", hint="`hal account list` lists them")
        if not is_closed(account, self._accounts):
            raise SpecError(
                f"account: '{account}' is not closed, so everybody could use its secrets",
                hint=f"hal account set {account} --closed",
            )

    def _check_room(self, which: SecretId, size: int) -> None:
        if len(self._book.of(which.kind, which.owner)) >= MAX_OF_ONE_OWNER:
            raise OverloadedError(
                f"{which.kind} '{which.owner}' has {MAX_OF_ONE_OWNER} secrets",
                hint="remove some: hal secret remove NAME",
            )
        if len(self._book) >= MAX_SECRETS or self._book.sealed_bytes + size > MAX_SEALED_BYTES:
            raise OverloadedError(f"there are {len(self._book)} secrets; no more can be stored")

    async def _prepare_key(self) -> None:
        """Have a key to seal with; the first is created now.

        Raises:
            DeniedError: there is none although something is stored under one.
        """
        if self._book.ring.current:
            return
        ring = await self._parts.runtime.run_blocking(partial(read_keys, self._parts.runtime.paths.secret_keys))
        if not ring.current and len(self._book):
            raise DeniedError(
                f"{self._parts.runtime.paths.secret_keys} is missing, and {len(self._book)} secrets are stored",
                hint="restore it from a copy, or from another controller of this store; or remove these secrets",
            )
        if ring.current:
            self._book.ring = ring
        else:
            await self._use(ring.with_new_key(self._parts.runtime.new_id))

    async def _use(self, ring: KeyRing) -> None:
        await self._parts.runtime.run_blocking(partial(write_keys, self._parts.runtime.paths.secret_keys, ring))
        self._book.ring = ring

    async def _write(self, rows: Mapping[str, str | None]) -> None:
        plane = self._parts.plane
        await self._parts.loop.inbox.call(lambda _: plane.add_operations(PutMeta(dict(rows))))


def _view(secret: Secret) -> SecretView:
    of_user = secret.kind is OwnerKind.USER
    return SecretView(
        name=secret.name,
        user=secret.owner if of_user else "",
        account="" if of_user else secret.owner,
        version=secret.version,
        set_ms=secret.set_ms,
        set_by=secret.set_by,
    )
