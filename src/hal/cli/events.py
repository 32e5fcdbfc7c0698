"""`hal events`: the durable feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import EventInfo

SHOWN_JOBS = 5


@command(
    "events",
    short_help="What happened.",
    output=True,
    examples="""
    hal events --job 42      # the story of one job
    hal events -f            # from now on, until Ctrl-C
    hal events -f -o json    # one JSON object a line
    """,
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Behind this sequence number.")
@click.option("--job", metavar="JOB", help="Only what concerns this job.")
@pass_screen
def events(screen: Screen, follow: bool, after: int | None, job: str | None) -> None:
    """What happened, in the order in which it was committed; with -o json one object a line."""
    try:
        for event in screen.client.events(after, follow=follow, job=job):
            if screen.plain:
                screen.item(event)
            else:
                screen.line(_line(event))
            if follow:
                screen.out.flush()
    except KeyboardInterrupt:
        if not follow:
            raise


def _line(event: EventInfo) -> str:
    from hal.cli.wording import instant

    shown = ",".join(str(job) for job in event.jobs[:SHOWN_JOBS])
    more = f",… ({len(event.jobs)})" if len(event.jobs) > SHOWN_JOBS else ""
    jobs = f"  job {shown}{more}" if shown else ""
    cause = f"  by {event.cause}" if event.cause else ""
    return f"{event.sequence:>6}  {instant(event.at_ms)}  {event.kind}{jobs}{cause}"
