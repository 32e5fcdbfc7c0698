"""`hal usage`: core hours, GPU hours, memory, waits, efficiency, energy and price of what has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.formats import NOTHING, instant, span
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.usage_calls import UsageAnswer, UsageInfo

KINDS: Final = ("account", "user", "queue", "node", "job-name")
PERIODS: Final = ("hour", "day", "week", "month")
DEFAULT_SINCE: Final = "7d"
DEFAULT_LIMIT: Final = 200


@command(
    "usage",
    output=True,
    examples="""
    hal usage                                      # of each account, within the last 7 days
    hal usage --by user --since 30d
    hal usage --by queue --period day --since 7d
    hal usage --by job-name --user ada             # which of ada's jobs waste most
    hal usage --account physics --by user          # as a coordinator of physics
    hal usage --since 2030-01-01 --until 2030-02-01 --csv > january.csv
    """,
)
@click.option("--by", type=click.Choice(KINDS), default="account", show_default=True, help="What a row sums up.")
@click.option(
    "--since", metavar="TIME", default=DEFAULT_SINCE, show_default=True, help="Ended within TIME (1h, 7d), or since."
)
@click.option("--until", metavar="TIME", help="Ended before TIME, or more than so long ago.")
@click.option("--period", type=click.Choice(PERIODS), help="A row for each hour, day, week or month.")
@click.option("--zone", metavar="ZONE", help="Time zone of periods, like Europe/Rome (default: that of this machine).")
@click.option("-A", "--account", metavar="NAME", help="Only jobs of this account, and of those below it.")
@click.option("--exact", is_flag=True, help="Of --account alone, without those below it.")
@click.option("-u", "--user", metavar="NAME", help="Only jobs of this user.")
@click.option("-Q", "--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("-n", "--name", metavar="NAME", help="Only jobs with this name.")
@click.option("--node", metavar="NAME", help="Only what ran on this node.")
@click.option("--limit", type=click.IntRange(0), default=DEFAULT_LIMIT, show_default=True, help="Rows to list; 0: all.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all fields of all rows as CSV.")
@click.option(
    "--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else as HAL says)."
)
@pass_screen
def usage(
    screen: Screen,
    by: str,
    since: str,
    until: str | None,
    period: str | None,
    zone: str | None,
    account: str | None,
    exact: bool,
    user: str | None,
    queue: str | None,
    name: str | None,
    node: str | None,
    limit: int,
    as_csv: bool,
    collector: str,
) -> None:
    """Sum up what ended work had, used and cost.

    Rows that had most cores are first. An attempt counts in whole when it ended. Users see what is theirs, operators
    everything, and coordinators an account that they coordinate, if they name it. It needs the collector: hal up --with
    observability.
    """
    from hal.cli.kit.collector import collector_client
    from hal.cli.kit.instants import ago_ms
    from hal.cli.kit.local_zone import local_zone
    from hal.client.rest import usage_calls
    from hal.runtime.time_zones import zone_named

    if exact and not account:
        raise click.UsageError("--exact is about --account; name one")
    if as_csv and screen.plain:
        raise click.UsageError("--csv and -o cannot be combined; give one of them")
    filters: dict[str, Any] = {
        "account": account,
        "exact": "1" if exact else None,
        "user": user,
        "queue": queue,
        "name": name,
        "node": node,
        "since_ms": ago_ms(since, "--since"),
        "until_ms": None if until is None else ago_ms(until, "--until"),
    }
    zone = zone_named(zone or local_zone()).key
    call = usage_calls.usage(by, period=period or "", zone=zone, **filters)
    found = collector_client(screen, collector).call(call)
    if as_csv:
        screen.out.write(as_csv_text(found))
    elif screen.plain:
        screen.emit(found)
    else:
        _print(screen, found, limit, zone)
    note_gaps(screen, found)


def note_gaps(screen: Screen, found: UsageAnswer) -> None:
    """Note what the sums lack, and where their range is not quite the one that was asked for."""
    from hal.core.model import plural

    for gap in found.lost:
        between = (
            f" between {instant(gap.since_ms)} and {instant(gap.until_ms)}" if gap.since_ms and gap.until_ms else ""
        )
        screen.note(
            f"{plural(gap.last - gap.first + 1, 'attempt')} that ended{between} are not counted: they were removed "
            "before the collector had read them"
        )
    if found.rounded:
        screen.note(f"of that time only sums by {found.rounded.removesuffix('s')} (UTC) are kept: the range is rounded")


def _print(screen: Screen, found: UsageAnswer, limit: int, zone: str) -> None:
    from hal.core.model import plural

    rows = found.rows[:limit] if limit else found.rows
    columns = _columns(found, zone)
    if rows:
        screen.table([title for title, _ in columns], [[cell(row) for _, cell in columns] for row in rows])
    else:
        screen.note("nothing that matches has ended in this time; --since 30d looks further back")
    if len(rows) < len(found.rows):
        screen.note(f"these are {len(rows)} of {plural(len(found.rows), 'row')}; --limit 0 lists all")


def _columns(found: UsageAnswer, zone: str) -> Sequence[tuple[str, Callable[[UsageInfo], str]]]:
    """Headings and cells; what no row has is left out."""
    rows = found.rows
    columns: list[tuple[str, Callable[[UsageInfo], str]]] = [(found.by.upper(), lambda row: row.key or NOTHING)]
    if found.period:
        columns.insert(0, (found.period.upper(), lambda row: period_text(found.period or "", row.since_ms, zone)))
    columns += [
        ("ATTEMPTS", lambda row: f"{row.attempts}"),
        ("FAILED", lambda row: f"{row.attempts - row.states.get('succeeded', 0)}"),
        ("CORE-H", lambda row: hours(row.core_hours)),
        ("CPU", lambda row: percent(row.cpu_efficiency)),
        ("IDLE-H", lambda row: hours(row.idle_core_hours)),
        ("GIB-H", lambda row: hours(row.memory_gib_hours)),
        ("MEM", lambda row: percent(row.memory_efficiency)),
    ]
    if any(row.gpu_hours for row in rows):
        columns += [("GPU-H", lambda row: hours(row.gpu_hours)), ("GPU", lambda row: percent(row.gpu_efficiency))]
    if any(row.measured_gpu_hours for row in rows):
        columns.append(("IDLE-GPU-H", lambda row: hours(row.idle_gpu_hours) if row.measured_gpu_hours else NOTHING))
    columns += [
        ("WAIT", lambda row: NOTHING if row.wait_s is None else span(round(row.wait_s * 1000))),
        ("KWH", lambda row: hours(row.energy_kwh)),
    ]
    if any(row.price is not None for row in rows):
        columns.append((found.currency or "PRICE", lambda row: NOTHING if row.price is None else f"{row.price:,.2f}"))
    return columns


def hours(value: float) -> str:
    """`12,345`, `12.3`, `0.012`: three digits are enough."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}".rstrip("0").rstrip(".")


def percent(part: float | None) -> str:
    """Of a part, 0..1."""
    return NOTHING if part is None else f"{part:.0%}"


def period_text(period: str, since_ms: int, zone: str) -> str:
    """When a period began, by the clocks of the zone."""
    began = datetime.fromtimestamp(since_ms / 1000, ZoneInfo(zone))
    return began.strftime({"hour": "%Y-%m-%d %H:%M", "month": "%Y-%m"}.get(period, "%Y-%m-%d"))


def as_csv_text(found: UsageAnswer) -> str:
    """All fields of all rows: times in milliseconds since 1970."""
    import csv
    import io

    from hal.client.rest.usage_calls import UsageInfo
    from hal.core.model import AttemptState

    fields = [name for name in UsageInfo.__struct_fields__ if name not in ("key", "states", "waits")]
    states = [state.value for state in AttemptState if state.ended]
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([found.by, *fields, *states, "currency"])
    currency = harmless(found.currency)
    for row in found.rows:
        values = [getattr(row, name) for name in fields]
        cells = ["" if value is None else value for value in values]
        table.writerow([harmless(row.key), *cells, *(row.states.get(state, 0) for state in states), currency])
    return out.getvalue()


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula, and that no terminal acts on."""
    from hal.core.model.printable import printable

    shown = printable(text)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown
