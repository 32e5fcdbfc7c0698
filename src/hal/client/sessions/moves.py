"""Which slots of a session with several brokers go to another one: those without a task, to where tasks wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hal.wire.frames.sessions import SessionNumbers


class Spare(NamedTuple):
    """How many more slots of a shape a broker has than it could use; negative: so many more it could."""

    shard: int
    slots: int


class Move(NamedTuple):
    """Slots that go from one broker to another."""

    origin: int
    target: int
    slots: int


def spare_slots(numbers: Mapping[int, SessionNumbers], shape: str) -> list[Spare]:
    """Of each broker, by its number."""
    return [
        Spare(shard, one.slots - one.wanted)
        for shard, found in numbers.items()
        for one in found.shapes
        if one.shape == shape
    ]


def moves_between(before: list[Spare], now: list[Spare], threads: int) -> list[Move]:
    """The moves after two looks: a slot that was spare, or missed, at one of them alone stays. O(brokers log brokers).

    Args:
        threads: of each slot; they move together.
    """
    known = dict(before)

    def lasting(one: Spare) -> int:
        slots = known.get(one.shard, 0)
        if one.slots > 0:
            return max(min(one.slots, slots), 0) // threads * threads
        return -(max(min(-one.slots, -slots), 0) + threads - 1) // threads * threads

    lasting_spares = [Spare(one.shard, lasting(one)) for one in now]
    origins = sorted((one for one in lasting_spares if one.slots > 0), key=lambda one: -one.slots)
    targets = sorted((one for one in lasting_spares if one.slots < 0), key=lambda one: one.slots)
    found: list[Move] = []
    while origins and targets:
        origin, target = origins[0], targets[0]
        count = min(origin.slots, -target.slots)
        found.append(Move(origin.shard, target.shard, count))
        origins[0] = Spare(origin.shard, origin.slots - count)
        targets[0] = Spare(target.shard, target.slots + count)
        if not origins[0].slots:
            del origins[0]
        if not targets[0].slots:
            del targets[0]
    return found


def kept_slots(spares: list[Spare], numbers: Mapping[int, int], surplus: int) -> dict[int, int]:
    """How many slots each broker keeps when so many of all of them are not wanted: those leave that it has to spare.

    Args:
        numbers: slots by broker.
    """
    found: dict[int, int] = {}
    for one in sorted(spares, key=lambda one: -one.slots):
        gone = min(max(one.slots, 0), max(surplus, 0))
        surplus -= gone
        if gone:
            found[one.shard] = numbers[one.shard] - gone
    return found
