"""Planes that have announced where they are reached: kept in memory until they expire, and told to agents.

A plane announces itself again before it expires; a controller that has started knows none until they do. Nothing here
knows what a plane is for. Agents are told when what they would dial changes, not when an announcement is renewed.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import NotFoundError, OverloadedError, SpecError, shown
from hal.core.model.plane_addresses import (
    DEFAULT_EXPIRES_MS,
    LONGEST_EXPIRES_MS,
    MAX_ANNOUNCED,
    check_plane_name,
    check_rest_addresses,
    check_wire_addresses,
)
from hal.core.model.units import parse_duration
from hal.daemons.controller.service.parts import Parts
from hal.runtime.interface import Timer
from hal.wire.frames.controller_agent import AnnouncedPlane, Planes

TELL_MS: Final = 200
"""Changes within this time are told to agents together."""
MAX_VERSION_CHARS: Final = 64
MISSED_MS: Final = 86_400_000
"""A plane that has expired, and was not withdrawn, is missed for so long."""


class PlaneBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a plane is reached."""

    rest: tuple[str, ...] = ()
    """For people and programs: `unix:/PATH`, `https://HOST:PORT`; the first that a client can use is used."""
    wire: tuple[str, ...] = ()
    """For HAL's processes: `unix:/PATH`, or `HOST:PORT` for TLS with certificates of this HAL."""
    version: str = ""
    """Of the plane's program."""
    expires_in: str | int | float | None = None
    """How long it holds unless it is announced again, "90s" or a number of seconds; absent: one minute."""


class PlaneView(Struct, frozen=True, kw_only=True):
    """A plane that has announced itself."""

    name: str
    rest: tuple[str, ...]
    wire: tuple[str, ...]
    version: str
    user: str
    """Who announced it."""
    since_ms: int
    """Since when it has been there without a gap."""
    expires_ms: int


class PlanesList(Struct, frozen=True, kw_only=True):
    """All planes by name."""

    planes: list[PlaneView]


class _Entry(Struct):
    view: PlaneView
    until_ms: int
    """By the monotonic clock."""


class AnnouncedPlanes:
    """Announce, list and withdraw planes."""

    def __init__(self, parts: Parts) -> None:
        self._runtime, self._clock, self._agents = parts.runtime, parts.clock, parts.agents
        self._entries: dict[str, _Entry] = {}
        self._missed: dict[str, int] = {}
        """Planes that have expired and were not withdrawn: until when they are missed, by the monotonic clock."""
        self._settled = False
        """Every plane has had the time to announce itself since this controller leads."""
        self._settling: Timer | None = None
        self._telling: Timer | None = None
        self._expiry: Timer | None = None

    def all(self) -> PlanesList:
        """All that have not expired, by name."""
        self._expire()
        return PlanesList(planes=[entry.view for _, entry in sorted(self._entries.items())])

    def up(self) -> dict[str, bool]:
        """Of each plane that has announced itself: whether it still does. One that was withdrawn is not there; one that
        was silent for longer than `MISSED_MS` is forgotten."""
        self._expire()
        now_ms = self._runtime.monotonic_ms()
        self._missed = {name: until_ms for name, until_ms in self._missed.items() if until_ms > now_ms}
        return dict.fromkeys(self._missed, False) | dict.fromkeys(self._entries, True)

    def announce(self, name: str, asked: PlaneBody, user: str) -> PlaneView:
        """Note where a plane is reached; whoever announces a name last is reached by it.

        Raises:
            SpecError: a field is wrong.
            OverloadedError: there are too many planes.
        """
        check_plane_name(name)
        rest, wire = check_rest_addresses(asked.rest), check_wire_addresses(asked.wire)
        if len(asked.version) > MAX_VERSION_CHARS or not asked.version.isprintable():
            raise SpecError(f"version: '{shown(asked.version)}' is too long or not printable")
        expires_ms = (
            DEFAULT_EXPIRES_MS if asked.expires_in is None else parse_duration(asked.expires_in, field="expires_in")
        )
        if not 0 < expires_ms <= LONGEST_EXPIRES_MS:
            raise SpecError("expires_in: it must be more than 0 and at most one hour")
        self._expire()
        known = self._entries.get(name)
        if known is None and len(self._entries) >= MAX_ANNOUNCED:
            raise OverloadedError(f"{MAX_ANNOUNCED} planes are announced", hint="withdraw one, or let it expire")
        now_ms = self._clock.now_ms()
        view = PlaneView(
            name=name,
            rest=rest,
            wire=wire,
            version=asked.version,
            user=user,
            since_ms=now_ms if known is None else known.view.since_ms,
            expires_ms=now_ms + expires_ms,
        )
        self._entries[name] = _Entry(view, self._runtime.monotonic_ms() + expires_ms)
        self._missed.pop(name, None)
        if known is None or known.view.wire != wire:
            self._tell_later()
        self._await_expiry()
        return view

    def withdraw(self, name: str) -> PlaneView:
        """Forget a plane, and return what was known of it.

        Raises:
            NotFoundError: it has not announced itself, or has expired.
        """
        self._expire()
        entry = self._entries.pop(name, None)
        self._missed.pop(name, None)
        if entry is None:
            raise NotFoundError(
                f"no plane '{shown(name)}' is announced", hint="it may have expired: GET /v1/planes lists those there"
            )
        self._tell_later()
        return entry.view

    def begin(self) -> None:
        """This controller leads from now on."""
        self._settling = self._runtime.call_later(DEFAULT_EXPIRES_MS, self._settle)

    def close(self) -> None:
        """Stop its timers."""
        for timer in (self._telling, self._expiry, self._settling):
            if timer is not None:
                timer.cancel()

    def _expire(self) -> None:
        now_ms = self._runtime.monotonic_ms()
        over = [name for name, entry in self._entries.items() if entry.until_ms <= now_ms]
        for name in over:
            del self._entries[name]
            if len(self._missed) < MAX_ANNOUNCED:
                self._missed[name] = now_ms + MISSED_MS
            self._runtime.log.info("a plane is not announced any more", plane=name)
        if over:
            self._tell_later()

    def _await_expiry(self) -> None:
        if self._expiry is None and self._entries:
            first_ms = min(entry.until_ms for entry in self._entries.values())
            self._expiry = self._runtime.call_later(max(1, first_ms - self._runtime.monotonic_ms()), self._expired)

    def _expired(self) -> None:
        self._expiry = None
        self._expire()
        self._await_expiry()

    def _settle(self) -> None:
        self._settled = True
        self._tell_later()

    def _tell_later(self) -> None:
        if self._telling is None:
            self._telling = self._runtime.call_later(TELL_MS, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._agents.tell_planes(
            Planes(
                planes=tuple(
                    AnnouncedPlane(name, entry.view.wire)
                    for name, entry in sorted(self._entries.items())
                    if entry.view.wire
                ),
                settled=self._settled,
            )
        )
