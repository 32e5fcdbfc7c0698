"""What a broker measures of its session: how long tasks took to be answered, what each slot did. Pure."""

from __future__ import annotations

from typing import Final

from hal.planes.sessions.slots import Slot
from hal.wire.frames.sessions import LATENCY_STEPS, SlotNumbers

LATE_RUN_MS: Final = 10_000
"""A slot that has reported nothing for so long while it has a task is called late."""


class Latencies:
    """How many tasks were answered within 1 ms, 2 ms, 4 ms and so on after their block arrived."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * LATENCY_STEPS

    def note(self, took_ms: int, tasks: int) -> None:
        """So many tasks were answered, that long after they came. O(1)."""
        self.counts[min(max(took_ms, 0).bit_length(), LATENCY_STEPS - 1)] += tasks


def numbers_of(slot: Slot, now_ms: int) -> SlotNumbers:
    """What people ask about a slot."""
    held = slot.held_tasks
    return SlotNumbers(
        name=slot.name,
        task=slot.task,
        held=held,
        done=slot.tasks_done,
        busy_us=slot.busy_us,
        since_ms=max(now_ms - slot.since_ms, 0),
        silent_ms=max(now_ms - slot.heard_ms, 0) if held else 0,
    )
