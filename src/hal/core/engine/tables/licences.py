"""Licences by value: what they are called, and which row of the tables each has.

Pure. What a booking sets aside of a licence counts like a licence of its own: jobs of the booking take it, others do
not. Without a policy nobody says how many there are, and any number is. `licensing` follows bookings and the policy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from hal.core.engine.classes import ClassSpec
from hal.core.engine.errors import EngineError
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import LICENCE_EVENTS, LICENCE_HOLDERS, LicenceTables

STARTS_AT_ONCE: Final = 4_096
"""Starts of one slice whose ends are looked at beside those of running attempts."""


class LicenceName(NamedTuple):
    """A licence, or what a booking sets aside of it."""

    name: str
    booking: str = ""


class LicenceRow(Struct, frozen=True):
    """One licence: how many there are (INF without a policy), are held, and are set aside by bookings now."""

    name: str
    total: int
    used: int
    booked: int


class Licences(LicenceTables):
    """The part of a `State` that counts licences."""

    def __init__(self) -> None:
        self.names: list[LicenceName] = []
        """By row in `licence_counts`. Only ever longer."""
        self.totals: dict[str, int] | None = None
        """How many there are by the policy; None = any number."""

    def following_rooms(self, reservations: int, runs: int) -> dict[Room, int]:
        """Room for ends of a slice's starts, two events of each reservation and changes; and for ends of attempts."""
        if not self.names:
            return {}
        events = STARTS_AT_ONCE + 4 * reservations + self.changes.shape[0] + 64
        return {LICENCE_EVENTS: events, LICENCE_HOLDERS: 2 * runs}

    def rows(self) -> list[LicenceRow]:
        """All that a class or the policy has named, by name."""
        table = self.licence_counts
        return sorted(
            (
                LicenceRow(one.name, whole, int(table[row, L.LICENCE_HELD]), whole - int(table[row, L.LICENCE_TOTAL]))
                for row, one in enumerate(self.names)
                if not one.booking
                for whole in (int(table[row, L.LICENCE_WHOLE]),)
            ),
            key=lambda row: row.name,
        )


def check_licences(spec: ClassSpec) -> None:
    """Raise EngineError unless every amount is one."""
    for name, amount in spec.licences.items():
        if not name or not 0 < amount < L.INF:
            raise EngineError(f"licence {name!r}: {amount} is not an amount above 0; the event was not applied")
