"""`hal audit`: show who changed what, from where, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.access_calls import AuditEntry

SHOWN_TARGETS = 4


@command(
    "audit",
    output=True,
    examples="""
    hal audit --since 1h
    hal audit --user bob -n 20
    hal audit -f             # new entries, until Ctrl-C
    """,
)
@click.option("--user", metavar="NAME", default="", help="Only requests of this user.")
@click.option("--since", metavar="TIME", help="Only the last TIME, such as 1h or 2d.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=100, help="Most entries to show (default: 100).")
@click.option("-f", "--follow", is_flag=True, help="Print new entries until Ctrl-C.")
@pass_screen
def audit(screen: Screen, user: str, since: str | None, limit: int, follow: bool) -> None:
    """Shows the newest requests that changed something, tried to, or were refused, the oldest of them first."""
    import time

    from hal.client.rest import access_calls
    from hal.client.rest.calls import last_sequence
    from hal.core.model import parse_duration

    since_ms = 0
    if since is not None:
        since_ms = max(int(time.time() * 1_000) - int(parse_duration(since, field="--since")), 0)
    page = screen.client.call(access_calls.audit(user=user, since_ms=since_ms, limit=limit))
    newest = max((entry.sequence for entry in page), default=0)
    _write(screen, page[::-1])
    if not follow:
        return
    if user and not newest:
        newest = max((entry.sequence for entry in screen.client.call(access_calls.audit(limit=1))), default=0)
    try:
        while True:
            more = screen.client.call(access_calls.audit(user=user, after=newest, wait_s=access_calls.AUDIT_WAIT_S))
            if more:
                newest = last_sequence(more, newest)
            _write(screen, more)
    except KeyboardInterrupt:
        return


def _write(screen: Screen, entries: Sequence[AuditEntry]) -> None:
    for entry in entries:
        if screen.plain:
            screen.item(entry)
        else:
            screen.line(_line(entry))
    screen.out.flush()


def _line(entry: AuditEntry) -> str:
    from hal.cli.kit.formats import instant

    who = f"{entry.user} ({entry.role})" if entry.user else "unknown"
    token = f" token {entry.token}" if entry.token else ""
    more = len(entry.targets) - SHOWN_TARGETS + entry.more
    about = " ".join(entry.targets[:SHOWN_TARGETS]) + (f" and {more} more" if more > 0 else "")
    refused = f"  refused: {entry.refused}" if entry.refused else ""
    if entry.times > 1:
        refused += f"  ({entry.times} of these since {instant(entry.since_ms)})"
    what = f"{entry.method} {entry.path}  {entry.status or 'no answer'}"
    return f"{instant(entry.at_ms)}  {who} from {entry.peer}{token}  {what}{refused}{'  ' if about else ''}{about}"
