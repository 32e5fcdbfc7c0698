"""What `hal session show` and `hal session failures` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hal.cli.kit.formats import instant, span
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.sessions.failures import FailedTask
    from hal.client.sessions.listing import SessionView, ShardView, SlotUse, TaskGroup

SLOT_COLUMNS: Final = ("TASK", "WORKER", "DONE", "HAS", "USE", "MEAN", "SILENT", "RUNS")
SHARD_COLUMNS: Final = ("SHARD", "TASK", "ANSWERS", "SLOTS", "BUSY", "WAITING", "OPEN", "DONE")
GROUP_COLUMNS: Final = ("DONE", "FAILED", "RETRIED", "MEAN", "TOOK")
FAILURE_COLUMNS: Final = ("AT", "STATUS", "FUNCTION", "TAGS", "ATTEMPTS", "WORKER", "ERROR")
BAR: Final = 40
LEVELS: Final = " ▁▂▃▄▅▆▇█"
LAST: Final = 5
"""Failures that `show` lists."""
MAX_GROUPS: Final = 10
"""Functions and tags that it lists."""
RECENT_S: Final = 10
"""The present rate is that of so many seconds."""


def render_session(screen: Screen, one: SessionView, failures: Sequence[FailedTask]) -> None:
    """Print how a session goes.

    Args:
        failures: the newest first.
    """
    screen.fields(
        {
            "session": one.session.name,
            "broker": f"job {one.session.broker}, {one.session.state}",
            "slots": "; ".join(_shapes(one)),
            "runs for": span(round(one.uptime_s * 1_000)),
            "clients": str(one.clients),
            "tasks": f"{one.done:,} done ({one.rate:,.0f} a second; {recent_rate(one):,.0f} now), "
            f"{one.unanswered:,} not answered, of which {one.waiting:,} wait",
            "ended badly": ", ".join(_endings(one)),
            "late": "; ".join(_late(slot) for slot in one.slots if slot.worker in one.late),
            "last minute": _line(one.seconds, "second"),
            "last hour": _line(one.minutes, "minute"),
        }
    )
    if one.within_ms:
        screen.line()
        most = max(one.within_ms.values())
        for within, tasks in one.within_ms.items():
            bar = "#" * max(round(BAR * tasks / most), 1)
            screen.line(f"answered within {int(within):>9,} ms  {tasks:>12,}  {bar}")
    for title, groups in (("FUNCTION", one.functions), ("TAG", one.tags)):
        if groups:
            screen.line()
            screen.table((title, *GROUP_COLUMNS), [_group(group) for group in groups[:MAX_GROUPS]])
            if len(groups) > MAX_GROUPS:
                screen.line(f"and {len(groups) - MAX_GROUPS} more: -o json")
    if one.shards:
        screen.line()
        screen.table(SHARD_COLUMNS, [_shard(one.session.broker, shard) for shard in one.shards])
    if one.slots:
        screen.line()
        several = any(slot.shape for slot in one.slots)
        columns = ("SHAPE", *SLOT_COLUMNS) if several else SLOT_COLUMNS
        screen.table(columns, [((slot.shape or "-",) if several else ()) + _slot(slot) for slot in one.slots])
    if failures:
        screen.line()
        render_failures(screen, failures[:LAST])
        screen.line(f"hal session failures {one.session.name} shows tracebacks")


def render_failures(screen: Screen, failures: Sequence[FailedTask], *, tracebacks: bool = False) -> None:
    """Print a table of them, or each with its traceback."""
    if not tracebacks:
        screen.table(FAILURE_COLUMNS, [_failure(one) for one in failures])
        return
    for one in failures:
        tags = f" [{', '.join(one.tags)}]" if one.tags else ""
        times = f"{one.attempts} attempt{'s' * (one.attempts != 1)}"
        screen.line(f"{instant(one.at_ms)}  {one.status}  {one.function}{tags}  {times}, last on {one.worker}")
        for line in (one.traceback or one.error).rstrip().splitlines():
            screen.line(f"    {line}")
        if one.traceback and one.error not in one.traceback:
            screen.line(f"    {one.error}")


def recent_rate(one: SessionView) -> float:
    """Tasks a second, in the last whole seconds."""
    whole = one.seconds[-RECENT_S - 1 : -1][-max(int(one.uptime_s), 1) :]
    return sum(whole) / len(whole) if whole else 0.0


def sparkline(counts: Sequence[int]) -> str:
    """One character each, as high as it is among them; what is not 0 is seen. Pure."""
    most = max(counts, default=0)
    steps = len(LEVELS) - 1
    return "".join(LEVELS[-(-count * steps // most)] if count else LEVELS[0] for count in counts)


def _line(counts: Sequence[int], unit: str) -> str:
    return f"|{sparkline(counts)}| {max(counts):,} in a {unit} at most" if any(counts) else ""


def _endings(one: SessionView) -> list[str]:
    found = [f"{tasks:,} {status}" for status, tasks in one.ended.items() if tasks and status != "done"]
    if one.retried:
        found.append(f"{one.retried:,} failed and ran again")
    if one.lost_workers:
        found.append(f"{one.lost_workers:,} worker{'s' * (one.lost_workers != 1)} lost")
    return found


def _late(slot: SlotUse) -> str:
    return f"{slot.worker}, for {slot.silent_s:.0f}s in {_task(slot)}"


def _task(slot: SlotUse) -> str:
    return slot.running + (f" [{', '.join(slot.tags)}]" if slot.tags else "")


def _shapes(one: SessionView) -> list[str]:
    return [
        f"{shape.shape + ': ' if shape.shape else ''}job {shape.job}: {shape.running} of {shape.most}"
        for shape in one.session.shapes
    ]


def _shard(broker: str, shard: ShardView) -> tuple[str, ...]:
    task = (str(shard.shard), f"{broker}.{shard.shard}")
    if not shard.answers:
        return (*task, "no", *("-" for _ in SHARD_COLUMNS[3:]))
    counts = (shard.slots, shard.busy, shard.waiting, shard.unanswered, shard.done)
    return (*task, "yes", *(f"{count:,}" for count in counts))


def _slot(slot: SlotUse) -> tuple[str, ...]:
    return (
        str(slot.task),
        slot.worker,
        f"{slot.done:,}",
        f"{slot.held:,}",
        f"{slot.use:.0%}",
        _time(slot.mean_us) if slot.done else "-",
        f"{slot.silent_s:.1f}s" if slot.held else "-",
        _task(slot) or "-",
    )


def _group(group: TaskGroup) -> tuple[str, ...]:
    ran = group.done + group.failed + group.retried
    return (
        group.name,
        f"{group.done:,}",
        f"{group.failed:,}",
        f"{group.retried:,}",
        _time(group.busy_us // ran) if ran else "-",
        span(group.busy_us // 1_000),
    )


def _failure(one: FailedTask) -> tuple[str, ...]:
    return (
        instant(one.at_ms),
        one.status,
        one.function,
        ",".join(one.tags) or "-",
        str(one.attempts),
        one.worker,
        one.error,
    )


def _time(us: int) -> str:
    return f"{us} us" if us < 1_000 else f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"
