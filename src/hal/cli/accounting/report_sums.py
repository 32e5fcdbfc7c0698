"""The sums of a weekly report, asked of the collector; and what follows from them. Times of days are of one zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from hal.client.rest.usage_calls import LostInfo, UsageAnswer, UsageInfo, usage

if TYPE_CHECKING:
    from hal.client.sync_client import Client

DAYS: Final = 7


class Total(Struct, frozen=True, kw_only=True):
    """Sums over several rows."""

    attempts: int
    succeeded: int
    core_hours: float
    cpu_hours: float
    cpu_efficiency: float | None
    idle_core_hours: float
    unsuccessful_core_hours: float
    memory_efficiency: float | None
    gpu_hours: float
    gpu_efficiency: float | None
    idle_gpu_hours: float
    waited: int
    wait_s: float | None
    longest_wait_s: float
    energy_kwh: float
    energy_measured: float
    price: float | None
    states: dict[str, int]


class Report(Struct, frozen=True, kw_only=True):
    """A week."""

    title: str
    """`Week 5 of 2030`"""
    scope: str
    """Of whose work it is, in words; empty: of all that may be seen."""
    monday: datetime
    zone: str
    total: Total
    before: Total
    """Of the week before."""
    days: list[Total]
    """Monday to Sunday."""
    accounts: Sequence[UsageInfo]
    users: Sequence[UsageInfo]
    queues: Sequence[UsageInfo]
    names: Sequence[UsageInfo]
    currency: str
    lost: Sequence[LostInfo]
    rounded: bool


def read_report(client: Client, monday: datetime, zone: str, filters: Mapping[str, Any]) -> Report:
    """Ask for a week and the one before it."""

    def asked(by: str, first: datetime, period: str = "") -> UsageAnswer:
        edges = {"since_ms": _ms(first), "until_ms": _ms(first + timedelta(days=DAYS))}
        return client.call(usage(by, period=period, zone=zone, **filters, **edges))

    week = {by: asked(by, monday) for by in ("account", "user", "queue", "job-name")}
    by_day = asked("queue", monday, "day")
    before = asked("queue", monday - timedelta(days=DAYS))
    mondays = [_ms(monday + timedelta(days=day)) for day in range(DAYS)]
    named = [f"{kind} {name}" for kind, name in filters.items() if name]
    return Report(
        title=f"Week {monday:%V} of {monday:%G}",
        scope=", ".join(named),
        monday=monday,
        zone=zone,
        total=total(week["queue"].rows),
        before=total(before.rows),
        days=[total([row for row in by_day.rows if row.since_ms == at_ms]) for at_ms in mondays],
        accounts=week["account"].rows,
        users=week["user"].rows,
        queues=week["queue"].rows,
        names=week["job-name"].rows,
        currency=week["queue"].currency,
        lost=week["queue"].lost,
        rounded=any(answer.rounded for answer in (*week.values(), by_day, before)),
    )


def total(rows: Sequence[UsageInfo]) -> Total:
    """Sum rows that have no attempt in common."""
    states: dict[str, int] = {}
    for row in rows:
        for state, count in row.states.items():
            states[state] = states.get(state, 0) + count
    prices = [row.price for row in rows if row.price is not None]
    waited = sum(row.waited for row in rows)
    energy = sum(row.energy_kwh for row in rows)
    return Total(
        attempts=sum(row.attempts for row in rows),
        succeeded=states.get("succeeded", 0),
        core_hours=sum(row.core_hours for row in rows),
        cpu_hours=sum(row.cpu_hours for row in rows),
        cpu_efficiency=_mean([(row.cpu_efficiency, row.core_hours) for row in rows]),
        idle_core_hours=sum(row.idle_core_hours for row in rows),
        unsuccessful_core_hours=sum(row.unsuccessful_core_hours for row in rows),
        memory_efficiency=_mean([(row.memory_efficiency, row.memory_gib_hours) for row in rows]),
        gpu_hours=sum(row.gpu_hours for row in rows),
        gpu_efficiency=_mean([(row.gpu_efficiency, row.measured_gpu_hours) for row in rows]),
        idle_gpu_hours=sum(row.idle_gpu_hours for row in rows),
        waited=waited,
        wait_s=sum((row.wait_s or 0.0) * row.waited for row in rows) / waited if waited else None,
        longest_wait_s=max((row.longest_wait_s for row in rows), default=0.0),
        energy_kwh=energy,
        energy_measured=sum(row.energy_kwh * row.energy_measured for row in rows) / energy if energy else 0.0,
        price=sum(prices) if prices else None,
        states=states,
    )


def _mean(parts: Sequence[tuple[float | None, float]]) -> float | None:
    """Weighted; None where nothing is known."""
    known = [(part, weight) for part, weight in parts if part is not None and weight > 0]
    weights = sum(weight for _, weight in known)
    return sum(part * weight for part, weight in known) / weights if weights else None


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
