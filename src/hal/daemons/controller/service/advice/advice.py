"""Advice of planes for the policies of the engine: put, read, withdrawn.

It goes to the engine as events, in parts between which the loop turns; it is never committed, and waits for no commit.
The engine's state is the only place where it is held: it is fed to a rebuilt engine again, and a new controller has
none until planes put theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from hal.core.engine.events import AdviceUpdated, AdviceWithdrawn
from hal.core.engine.tables.advice import Kind
from hal.core.model import ConflictError, NotFoundError, OverloadedError
from hal.core.model.advice import MAX_VERSION
from hal.daemons.controller.service.advice.views import AdviceColumns, AdvicePut, AdviceView, Update
from hal.daemons.controller.service.parts import Parts

KEYS_A_PART = 2_048
"""Keys that the engine is fed in one turn of the loop."""
MAX_WAITING = 100
"""Updates that wait for their turn."""
MAX_TRIES = 5
"""An update is fed again from the beginning so often, if what was held expired or the engine was rebuilt between its
parts: both drop those that were fed."""


class Told(Struct, frozen=True):
    """Who put a kind last, and when."""

    user: str
    at_ms: int


class Advice:
    """Put, read and withdraw advice."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._told: dict[str, Told] = {}
        """By kind that is held."""

    def all(self) -> list[AdviceView]:
        """All kinds by name."""
        self._expire()
        known = self._parts.engine.known_keys(self._kinds)
        return [self._view(kind, known) for kind in sorted(self._kinds)]

    def ages_s(self) -> dict[str, float]:
        """How long ago each kind that is held was put last."""
        now_ms = self._parts.clock.now_ms()
        return {kind: max(now_ms - told.at_ms, 0) / 1_000 for kind, told in self._told.items() if kind in self._kinds}

    def get(self, kind: str, after: int, limit: int) -> AdviceColumns:
        """A kind, with at most `limit` of its keys from slot `after` on.

        Raises:
            NotFoundError: nothing is held of it.
        """
        held = self._held(kind)
        values = held.values[after:]
        slots = after + np.flatnonzero(~np.isnan(values))[: limit + 1]
        shown = slots[:limit]
        names = self._parts.engine.state.advice
        return AdviceColumns(
            advice=self._view(kind),
            keys=[names.key_at(held.space, slot) for slot in shown.tolist()],
            values=held.values[shown].tolist(),
            cursor=str(int(slots[limit])) if slots.size > limit else "",
        )

    async def put(self, kind: str, update: Update, user: str) -> AdvicePut:
        """Let the policies read it from their next pass on.

        Raises:
            ConflictError: a newer version is held, or not the one that a delta is based on; its keys name something
                else; or more would be held than the bounds allow. Nothing was changed.
            OverloadedError: too many updates wait.
        """
        if self._waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} updates of advice wait already", hint="put larger ones less often")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._put(kind, update, user)
        finally:
            self._waiting -= 1

    async def _put(self, kind: str, update: Update, user: str) -> AdvicePut:
        for _ in range(MAX_TRIES):
            self._expire()
            version = self._next_version(kind, update)
            if version is None:
                return AdvicePut(applied=False, advice=self._view(kind))
            engine, state = self._parts.engine, self._parts.engine.state
            refusal = state.advice.refusal(kind, update.space, len(update.keys))
            if refusal:
                raise ConflictError(
                    refusal, hint="`hal advice list` shows what is held, `hal advice remove` withdraws it"
                )
            now_ms = self._parts.clock.now_ms()
            for part in _parts(kind, update, version, now_ms + update.expires_in_ms):
                engine.feed((part,))
                if part.more:
                    await self._parts.runtime.sleep(0)
                    if engine.state is not state or kind not in state.advice.staged:
                        break
            else:
                self._told[kind] = Told(user, now_ms)
                self._wake()
                return AdvicePut(applied=True, advice=self._view(kind))
        raise OverloadedError(
            "the scheduler was rebuilt, or what was held has expired, between the parts of each try",
            hint="try again in a second",
        )

    async def withdraw(self, kind: str) -> AdviceView:
        """Forget a kind, and return it as it was.

        Raises:
            NotFoundError: nothing is held of it.
        """
        async with self._turn:
            self._held(kind)
            view = self._view(kind)
            self._parts.engine.feed((AdviceWithdrawn((kind,)),))
            self._told.pop(kind, None)
            self._wake()
            return view

    @property
    def _kinds(self) -> dict[str, Kind]:
        return self._parts.engine.state.advice.kinds

    def _held(self, kind: str) -> Kind:
        self._expire()
        held = self._kinds.get(kind)
        if held is None:
            raise NotFoundError(
                f"no advice '{kind}' is held", hint="`hal advice list` lists what is; it may be expired"
            )
        return held

    def _next_version(self, kind: str, update: Update) -> int | None:
        """The version that an update makes; None where it is held already."""
        held = self._kinds.get(kind)
        there = 0 if held is None else held.version
        if held is not None and update.version == there:
            return None
        if update.base is not None and update.base != there:
            raise ConflictError(
                f"advice '{kind}' is held in version {there}, not {update.base}"
                if held is not None
                else f"no advice '{kind}' is held, so version {update.base} cannot be changed",
                hint="put it whole: advice expires, and a controller that has started has none",
            )
        version = there + 1 if update.version is None else update.version
        if version < there or version > MAX_VERSION:
            raise ConflictError(
                f"advice '{kind}' is held in version {there}: no version {version} can follow",
                hint="count versions up, or withdraw it first; if another plane puts this kind, use another name",
            )
        return version

    def _expire(self) -> None:
        """Withdraw what the engine has had no reason to look at since its time was over."""
        expired = self._parts.engine.state.advice.expired(self._parts.clock.now_ms())
        if expired:
            self._parts.engine.feed((AdviceWithdrawn(tuple(expired)),))
            self._wake()
        for kind in self._told.keys() - self._kinds.keys():
            del self._told[kind]

    def _wake(self) -> None:
        """Have a pass made where the order may put another job first now."""
        if self._parts.engine.state.advice.awaits_pass:
            self._parts.loop.look_again()

    def _view(self, kind: str, known: Mapping[str, int] | None = None) -> AdviceView:
        """`known`: as the engine has counted; None: it is asked."""
        known = self._parts.engine.known_keys((kind,)) if known is None else known
        held = self._kinds[kind]
        now_ms = self._parts.clock.now_ms()
        told = self._told.get(kind, Told("", now_ms))
        return AdviceView(
            kind=kind,
            space=held.space,
            version=held.version,
            count=held.keys,
            known=known.get(kind),
            user=told.user,
            updated_ms=told.at_ms,
            age_ms=max(now_ms - told.at_ms, 0),
            expires_ms=held.expires_ms,
            read_by=self._parts.engine.readers_of(kind),
        )


def _parts(kind: str, update: Update, version: int, expires_ms: int) -> Iterator[AdviceUpdated]:
    count = max(len(update.keys), 1)
    for first in range(0, count, KEYS_A_PART):
        yield AdviceUpdated(
            kind,
            update.space,
            version,
            update.keys[first : first + KEYS_A_PART],
            update.values[first : first + KEYS_A_PART],
            expires_ms,
            whole=not update.delta,
            more=first + KEYS_A_PART < count,
        )
