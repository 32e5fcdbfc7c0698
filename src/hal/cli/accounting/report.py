"""`hal report`: a week of work as one HTML file: efficiency, waste, waits and failures."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen

_WEEK: Final = re.compile(r"(\d{4})-?W(\d{1,2})")


@command(
    "report",
    examples="""
    hal report                                  # this week so far, of what you may see
    hal report --week last --user ada -f ada.html
    hal report --week 2030-W05 --account physics
    """,
)
@click.option("-u", "--user", metavar="NAME", help="Only jobs of this user.")
@click.option("-A", "--account", metavar="NAME", help="Only jobs of this account.")
@click.option("-Q", "--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("--week", metavar="WEEK", default="this", show_default=True, help="this, last, or like 2030-W05.")
@click.option("--zone", metavar="ZONE", help="Time zone of days, like Europe/Rome (default: that of this machine).")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="Where to write it (default: hal-report-WEEK.html here).",
)
@click.option(
    "--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else as HAL says)."
)
@pass_screen
def report(
    screen: Screen,
    user: str | None,
    account: str | None,
    queue: str | None,
    week: str,
    zone: str | None,
    path: Path | None,
    collector: str,
) -> None:
    """Write a week's report as one HTML file.

    The file loads nothing. It shows core hours and how well they were used, what was wasted, who used most, how long
    jobs waited, and what failed. It needs the collector: hal up --with observability.
    """
    from hal.cli.accounting.report_page import page
    from hal.cli.accounting.report_sums import read_report
    from hal.cli.kit.collector import collector_client
    from hal.cli.kit.local_zone import local_zone
    from hal.runtime.time_zones import zone_named

    zone = zone or local_zone()
    monday = monday_of(week, datetime.now(zone_named(zone)))
    filters: dict[str, Any] = {"user": user, "account": account, "queue": queue}
    found = read_report(collector_client(screen, collector), monday, zone, filters)
    path = path or Path(f"hal-report-{monday:%G-W%V}.html")
    with written_whole(path) as unfinished:
        unfinished.write_text(page(found), encoding="utf-8")
    screen.note(f"{path}: {found.title}")
    if not found.total.attempts:
        screen.note("nothing that you may see has ended in this week")


def monday_of(week: str, now: datetime) -> datetime:
    """When a week began.

    Raises:
        click.BadParameter: that is no week.
    """
    monday = (now - timedelta(days=now.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    if week == "this":
        return monday
    if week == "last":
        return monday - timedelta(days=7)
    if found := _WEEK.fullmatch(week.strip()):
        try:
            return datetime.fromisocalendar(int(found[1]), int(found[2]), 1).replace(tzinfo=now.tzinfo)
        except ValueError:
            pass
    raise click.BadParameter(f"'{week}' is no week; write this, last, or like 2030-W05", param_hint="--week")
