"""How sums of the history are shown: hours, parts and means of whole measures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hal.planes.observability.history.levels import Level
from hal.planes.observability.history.periods import Period
from hal.planes.observability.history.tables import COUNTED_STATES, WAITS
from hal.planes.observability.history.usage import By, Sums

HOUR_MS = 3_600_000
MIB_S_OF_GIB_HOUR = 1024 * 3600
MJ_OF_KWH = 3_600_000_000
MICRO = 1_000_000


class UsageRow(Struct, frozen=True, kw_only=True):
    """What some attempts had, used and cost: those that ended within a period and have a key in common. What is not
    known or has no sense is null."""

    key: str
    """The account, user, queue, node or job name."""
    since_ms: int
    """Of its period, to `until_ms`."""
    until_ms: int
    attempts: int
    tasks: int
    """Tasks whose first attempt is among them."""
    jobs: int
    """Jobs whose first task's first attempt is among them."""
    ran: int
    """Attempts that began."""
    states: dict[str, int]
    """Attempts by how they ended; none that is 0."""
    ran_hours: float
    core_hours: float
    """Cores that they were given, for as long as they ran."""
    cpu_hours: float
    """CPU time used."""
    cpu_efficiency: float | None
    """CPU time used of core hours, 0..1, of those whose CPU time was counted."""
    partly_counted: int
    """Attempts of which only the first process, and those that it waited for, were counted."""
    unsuccessful_core_hours: float
    """Core hours of attempts that did not succeed."""
    idle_core_hours: float
    """Core hours in which the cores waited, where CPU time was counted."""
    memory_gib_hours: float
    memory_efficiency: float | None
    """The peak of each attempt, for as long as it ran, of what it asked for."""
    peak_bytes: int
    """The most that one attempt used on one node."""
    gpu_hours: float
    gpu_efficiency: float | None
    """The time that GPUs worked, of that for which they were given, where it was measured."""
    measured_gpu_hours: float
    """Of `gpu_hours`, those whose use was measured."""
    idle_gpu_hours: float
    """Of these, those in which the GPUs did nothing."""
    walltime_efficiency: float | None
    """The time that attempts with a walltime ran, of their walltimes."""
    waited: int
    """Attempts whose wait is known."""
    wait_s: float | None
    """Mean wait until their processes began."""
    longest_wait_s: float
    waits: dict[str, int]
    """How many waited at most 1m, 10m, 1h, 6h, 1d."""
    read_bytes: int
    written_bytes: int
    energy_kwh: float
    energy_measured: float
    """How much of that was measured, 0..1; the rest is by the model."""
    price: float | None
    """In `currency`; null: no price is known for any of them."""


class LostView(Struct, frozen=True, kw_only=True):
    """Ended attempts that the controller no longer had when they were asked for: they are in no sum."""

    first: int
    last: int
    """Sequence numbers."""
    since_ms: int
    """They ended after this; 0: not known."""
    until_ms: int
    """They ended before this; 0: not known."""


class UsageView(Struct, frozen=True, kw_only=True):
    """Usage by what was asked for."""

    by: By
    period: Period | None
    since_ms: int
    until_ms: int
    rows: list[UsageRow]
    """By period, then by core hours, the most first."""
    currency: str
    rounded: Level | None
    """To whole minutes, hours or days (of UTC) an end of the range was rounded, as nothing finer is kept there."""
    lost: list[LostView]
    """Gaps within the range."""


def usage_rows(found: Sequence[Sums], periods: Sequence[tuple[int, int]]) -> list[UsageRow]:
    """A row for each; beginning and end of the periods."""
    return [usage_row(sums, *periods[sums.period]) for sums in found]


def usage_row(sums: Sums, since_ms: int, until_ms: int) -> UsageRow:
    """One row."""
    counted_ms = sums["counted_core_ms"]
    return UsageRow(
        key=sums.key,
        since_ms=since_ms,
        until_ms=until_ms,
        attempts=sums["attempts"],
        tasks=sums["tasks"],
        jobs=sums["jobs"],
        ran=sums["ran"],
        states={state: sums[name] for state, name in COUNTED_STATES.items() if sums[name]},
        ran_hours=_hours(sums["ran_ms"]),
        core_hours=_hours(sums["core_ms"]),
        cpu_hours=_hours(sums["cpu_ms"]),
        cpu_efficiency=_part(sums["cpu_ms"], counted_ms),
        partly_counted=sums["partly_counted"],
        unsuccessful_core_hours=_hours(sums["unsuccessful_core_ms"]),
        idle_core_hours=_hours(max(counted_ms - sums["cpu_ms"], 0)),
        memory_gib_hours=_rounded(sums["memory_mib_s"] / MIB_S_OF_GIB_HOUR),
        memory_efficiency=_part(sums["memory_used_mib_s"], sums["memory_counted_mib_s"]),
        peak_bytes=sums["peak_bytes"],
        gpu_hours=_hours(sums["gpu_ms"]),
        gpu_efficiency=_part(sums["gpu_used_ms"], sums["gpu_counted_ms"]),
        measured_gpu_hours=_hours(sums["gpu_counted_ms"]),
        idle_gpu_hours=_hours(max(sums["gpu_counted_ms"] - sums["gpu_used_ms"], 0)),
        walltime_efficiency=_part(sums["limited_ms"], sums["walltime_ms"]),
        waited=sums["waited"],
        wait_s=round(sums["wait_ms"] / sums["waited"] / 1000, 3) if sums["waited"] else None,
        longest_wait_s=sums["longest_wait_ms"] / 1000,
        waits={name: sums[f"waited_{name}"] for name in WAITS},
        read_bytes=sums["read_kib"] << 10,
        written_bytes=sums["written_kib"] << 10,
        energy_kwh=_rounded(sums["energy_mj"] / MJ_OF_KWH),
        energy_measured=_part(sums["measured_energy_mj"], sums["energy_mj"]) or 0.0,
        price=_rounded(sums["price_micro"] / MICRO) if sums["priced"] else None,
    )


def _hours(ms: int) -> float:
    return _rounded(ms / HOUR_MS)


def _part(amount: int, of: int) -> float | None:
    return round(amount / of, 4) if of else None


def _rounded(value: float) -> float:
    return round(value, 6)
