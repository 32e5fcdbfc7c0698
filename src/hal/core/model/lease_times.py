"""How long leases are valid, and when a silent node has certainly ended its guarded steps.

Pure. The times of one HAL are set in hal.toml (`[leases]`); docs/failures.md explains them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.core.model.units import format_duration

DRIFT_PER_MILLE: Final = 1_020
"""Clocks of two machines may drift apart by two percent: what one waits for the other is longer by this much."""
MIN_MS: Final = 50
MAX_MS: Final = 86_400_000
HEARTBEATS_A_LEASE: Final = 3
"""A lease shorter than this many heartbeats would lapse because one of them was late."""


class LeaseTimes(Struct, frozen=True, kw_only=True):
    """The times that agents, keepers and controllers agree on, in milliseconds."""

    heartbeat_ms: int = 2_000
    """How often an agent sends its keeper's stamp."""
    node_ms: int = 60_000
    """L: how long a keeper's lease is valid from its stamp."""
    leader_ms: int = 3_000
    """E: how long a controller's lease is valid."""
    kill_ms: int = DEFAULT_GRACE_MS
    """How long a keeper may take to notice that its lease has lapsed and to end its steps."""
    slack_ms: int = 15_540
    """Added to the sum; the default makes it 90 s."""

    @property
    def lost_after_ms(self) -> int:
        """T: how long after the last acknowledgement sent to it a node may still run guarded steps."""
        return lost_after(self, self.node_ms)


def lost_after(times: LeaseTimes, node_ms: int) -> int:
    """Compute T = 1.02 · (L + E + kill) + slack in ms, rounded up, for the longest lease granted, `node_ms`."""
    return -(-DRIFT_PER_MILLE * (node_ms + times.leader_ms + times.kill_ms) // 1000) + times.slack_ms


def check_lease_times(times: LeaseTimes) -> LeaseTimes:
    """Check the times and return them.

    Raises:
        SpecError: one is out of range, or a lease would lapse between two heartbeats; names the field of hal.toml.
    """
    for field in times.__struct_fields__:
        value, name = getattr(times, field), field.removesuffix("_ms")
        least = 0 if name == "slack" else MIN_MS
        if not least <= value <= MAX_MS:
            hint = f"between {format_duration(least)} and {format_duration(MAX_MS)}"
            raise SpecError(f"leases.{name}: {format_duration(value)} is out of range", hint=hint)
    least = HEARTBEATS_A_LEASE * times.heartbeat_ms
    if times.node_ms < least:
        raise SpecError(
            f"leases.node: {format_duration(times.node_ms)} is less than {HEARTBEATS_A_LEASE} heartbeats of "
            f"{format_duration(times.heartbeat_ms)}",
            hint=f"at least {format_duration(least)}, or a shorter heartbeat",
        )
    return times
