"""`hal events`: show the event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import EventInfo

SHOWN_JOBS = 5


@command(
    "events",
    output=True,
    examples="""
    hal events --job 42      # the history of one job
    hal events -f            # new events, until Ctrl-C
    hal events -f -o json    # one JSON object per line
    """,
)
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Only events after sequence number N.")
@click.option("--job", metavar="JOB", help="Only events about this job.")
@pass_screen
def events(screen: Screen, follow: bool, after: int | None, job: str | None) -> None:
    """Events are in the order in which they were committed. With --job, a line tells only what concerns that job.

    With -o json, one object is printed per line.
    """
    try:
        for event in screen.client.events(after, follow=follow, job=job):
            if screen.plain:
                screen.item(event)
            else:
                screen.line(_line(event, job))
            if follow:
                screen.out.flush()
    except KeyboardInterrupt:
        if not follow:
            raise


def _line(event: EventInfo, job: str | None) -> str:
    from hal.cli.jobs.event_text import told
    from hal.cli.kit.formats import instant

    shown = ",".join(str(one) for one in event.jobs[:SHOWN_JOBS])
    more = f",… ({len(event.jobs)})" if len(event.jobs) > SHOWN_JOBS else ""
    jobs = f"  job {shown}{more}" if shown and job is None else ""
    cause = f"  by {event.cause}" if event.cause else ""
    said = told(event, job)
    return f"{event.sequence:>6}  {instant(event.at_ms)}  {event.kind}{jobs}{cause}{f'  {said}' if said else ''}"
