"""`hal cron`: jobs that are submitted again and again, by a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.job_options import job_options
from hal.cli.jobs.trailing_command import TrailingCommand
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.cron_calls import CronInfo, CronRunInfo

COLUMNS = ("NAME", "USER", "SCHEDULE", "ZONE", "NEXT", "LAST DUE", "OUTCOME", "JOB", "STATE", "REASON")
HISTORY_COLUMNS = ("DUE", "OUTCOME", "JOB", "STATE", "REASON")
_OWN = frozenset({"entry", "schedule", "zone", "overlap", "catch_up", "keep", "replaces", "user"})
"""Parameters of `add` that have a meaning for job files, too."""

cron = NounGroup(
    "cron",
    aliases={"rm": "remove", "edit": "add", "release": "resume"},
    help="A periodic job is submitted at each due time of a cron expression, once, whatever befalls controllers. Its "
    "jobs have its owner's rights at that time.",
    epilog="Example: hal cron add nightly '30 2 * * *' --zone Europe/Berlin -- ./report.sh",
)

_user = click.option("-u", "--user", metavar="NAME", default="", help="Whose it is (default: yours).")


@click.command(
    "add",
    cls=TrailingCommand,
    output=True,
    examples="""
    hal cron add nightly '30 2 * * *' --zone Europe/Berlin -t 1h -- ./report.sh
    hal cron add sync @hourly --overlap queue sync.sh --full     # a script with its arguments; #HAL lines count
    hal cron add fit '0 6 * * mon' --replace fit.toml            # changes the one of this name
    hal cron add poll '*/15 8-18 * * mon-fri' --dry-run -- ./poll.sh
    """,
)
@click.argument("entry", metavar="NAME")
@click.argument("schedule", metavar="SCHEDULE")
@click.argument("files", metavar="[FILE | SCRIPT [ARG]...]", nargs=-1)
@click.option(
    "-z", "--zone", default="UTC", show_default=True, metavar="ZONE", help="Time zone of the schedule: Europe/Berlin."
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "replace", "allow"]),
    default="skip",
    show_default=True,
    help="While an earlier job has not ended: skip the due time, queue the new job, replace the earlier, allow both.",
)
@click.option(
    "--catch-up",
    type=click.Choice(["none", "one"]),
    default="none",
    show_default=True,
    help="After due times that passed while HAL was down: submit none, or one job for all of them.",
)
@click.option("--keep", type=click.IntRange(1, 1_000), metavar="N", help="Entries of its history (default: 50).")
@click.option("--replace", "replaces", is_flag=True, help="Change the one of this name, and keep its history.")
@click.option("--dry-run", is_flag=True, help="Check it and show it; change nothing.")
@job_options
@pass_screen
@click.pass_context
def add(
    ctx: click.Context,
    screen: Screen,
    /,
    entry: str,
    schedule: str,
    files: Sequence[str],
    zone: str,
    overlap: str,
    catch_up: str,
    keep: int | None,
    replaces: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Make a periodic job.

    SCHEDULE is minute, hour, day of the month, month and day of the week, as in crontab, or @hourly, @daily, @weekly,
    @monthly, @yearly. What follows is the job, as for `hal submit`: a job file, a script, or a command after --.
    """
    from hal.cli.jobs.submit import specs_given
    from hal.client.rest import cron_calls

    specs = specs_given(ctx, screen, files, None, (), given, foreign=True, own=_OWN)
    if len(specs) != 1:
        raise click.UsageError(f"a periodic job submits one job, and there are {len(specs)}")
    made = screen.client.call(
        cron_calls.put_cron_job(
            entry,
            schedule,
            specs[0],
            zone=zone,
            overlap=overlap,
            catch_up=catch_up,
            keep=keep,
            user=given["user"] or specs[0].user,
            replace=replaces,
            dry_run=dry_run,
        )
    )

    def render() -> None:
        screen.line(f"{made.name}: next at {_in_zone(made.next_ms, made.zone)}")
        if dry_run:
            screen.note("nothing was changed")

    screen.show(made, render)


@command("list", output=True, examples="hal cron list\nhal cron list --user bob     # as an operator")
@click.option("-u", "--user", metavar="NAME", default="", help="Those of this user.")
@pass_screen
def list_cron(screen: Screen, user: str) -> None:
    """List periodic jobs: yours, or all if you are an operator."""
    found = sorted(screen.client.cron_jobs(user=user), key=lambda one: (one.user, one.name))

    screen.show_list(found, COLUMNS, _cells, "there are no periodic jobs; make one: hal cron add NAME SCHEDULE -- ...")


@command("show", output=True, examples="hal cron show nightly")
@click.argument("name")
@_user
@pass_screen
def show(screen: Screen, name: str, user: str) -> None:
    """Show a periodic job in full."""
    one = screen.client.cron_job(name, user=user)

    screen.show(one, lambda: _render(screen, one))


@command("hold", output=True, examples="hal cron hold nightly")
@click.argument("name")
@_user
@pass_screen
def hold(screen: Screen, name: str, user: str) -> None:
    """Hold a periodic job: nothing of it is submitted until it is resumed. Its running jobs go on."""
    one = screen.client.hold_cron(name, user=user)
    screen.show(one, lambda: screen.line(f"{one.name}: held"))


@command("resume", output=True, examples="hal cron resume nightly")
@click.argument("name")
@_user
@pass_screen
def resume(screen: Screen, name: str, user: str) -> None:
    """Resume a held periodic job, from its next due time on."""
    one = screen.client.resume_cron(name, user=user)
    screen.show(one, lambda: screen.line(f"{one.name}: next at {_in_zone(one.next_ms, one.zone)}"))


@command("remove", output=True, examples="hal cron remove nightly")
@click.argument("name")
@_user
@pass_screen
def remove(screen: Screen, name: str, user: str) -> None:
    """Remove a periodic job and its history. Jobs that it submitted go on."""
    one = screen.client.remove_cron(name, user=user)
    screen.show(one, lambda: screen.line(f"{one.name} removed"))


@command("run", output=True, examples="hal cron run nightly\nhal wait $(hal cron run nightly)")
@click.argument("name")
@_user
@pass_screen
def run(screen: Screen, name: str, user: str) -> None:
    """Submit the job of a periodic job now, whatever its schedule and its overlap policy say; prints the job's id."""
    from hal.client.rest import cron_calls

    made = screen.client.call(cron_calls.run_cron_job(name, user))
    screen.show(made, lambda: screen.line(made.job))


@command("history", output=True, examples="hal cron history nightly\nhal cron history nightly --limit 5 --json")
@click.argument("name")
@_user
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The newest N only.")
@pass_screen
def history(screen: Screen, name: str, user: str, limit: int | None) -> None:
    """Show what became of its due times, newest first: submitted, skipped, missed or refused."""
    found = list(screen.client.cron_history(name, user=user, limit=limit))

    screen.show_list(found, HISTORY_COLUMNS, _run_cells, "nothing was due yet; see hal cron show for when it will be")


def _cells(one: CronInfo) -> tuple[str, ...]:
    last = _run_cells(one.last) if one.last is not None else ("-",) * len(HISTORY_COLUMNS)
    upcoming = f"held by {one.held_by}" if one.held_by else _in_zone(one.next_ms, one.zone)
    return (one.name, one.user, one.schedule, one.zone, upcoming, *last)


def _run_cells(run: CronRunInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    outcome = f"{run.outcome} by hand" if run.manual else run.outcome
    if run.times > 1:
        outcome += f" {run.times}"
    gone = "removed" if run.job else "-"
    return (instant(run.due_ms), outcome, run.job or "-", run.state or gone, run.reason or "-")


def _in_zone(ms: int | None, zone: str) -> str:
    """An instant on the clock of the schedule."""
    from datetime import UTC, datetime, tzinfo
    from zoneinfo import ZoneInfo

    if ms is None:
        return "never"
    table: tzinfo = UTC
    if zone.upper() != "UTC":
        try:
            table = ZoneInfo(zone)
        except (ValueError, OSError, KeyError):  # this machine may not know it
            zone = "UTC"
    return f"{datetime.fromtimestamp(ms / 1000, table):%Y-%m-%d %H:%M:%S %Z}"


def _render(screen: Screen, one: CronInfo) -> None:
    from hal.cli.kit.formats import instant

    job = one.job or {}
    program = job.get("command") or ["a script", *job.get("arguments", ())]
    last = "" if one.last is None else " ".join(cell for cell in _run_cells(one.last) if cell != "-")
    screen.fields(
        {
            "Name": one.name,
            "User": one.user,
            "Schedule": f"{one.schedule} ({one.zone})",
            "Next": f"held by {one.held_by}" if one.held_by else _in_zone(one.next_ms, one.zone),
            "Last": last,
            "Overlap": one.overlap,
            "Catch-up": one.catch_up,
            "History": f"the newest {one.keep} entries",
            "Live jobs": " ".join(one.live),
            "Queue": one.queue,
            "Account": one.account,
            "Job": " ".join(map(str, program)),
            "Made": f"{instant(one.created_ms)} by {one.created_by}",
            "Changed": instant(one.changed_ms),
        }
    )


for one in (add, list_cron, show, hold, resume, run, history, remove):
    cron.add_command(one)
