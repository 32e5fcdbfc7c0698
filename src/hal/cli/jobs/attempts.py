"""`hal attempts`: list ended attempts, once or as they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.feed_calls import EndedAttemptInfo

COLUMNS = ("ID", "USER", "STATE", "EXIT", "NODES", "TIME", "ENDED", "REASON")
DEFAULT_LIMIT = 50


@command(
    "attempts",
    output=True,
    examples="""
    hal attempts                       # the last 50
    hal attempts -s failed -s lost     # those that went wrong
    hal attempts --node n1 --since 1h  # what ended on n1 within the last hour
    hal attempts -f -o json            # one JSON object per line as attempts end, until Ctrl-C
    """,
)
@click.option("-s", "--state", multiple=True, metavar="STATE", help="Only attempts that ended like this; repeatable.")
@click.option("--job", metavar="JOB", help="Only attempts of this job.")
@click.option("-u", "--user", metavar="NAME", help="Only attempts of this user's jobs.")
@click.option("--node", metavar="NAME", help="Only attempts that ran on this node.")
@click.option("--since", metavar="TIME", help="Only attempts that ended since then: 1h or 2d ago, 08:00, yesterday.")
@click.option("--after", metavar="CURSOR", help="The attempts behind this cursor, not the last ones.")
@click.option("-n", "--limit", type=click.IntRange(1, 5000), default=DEFAULT_LIMIT, show_default=True, help="Most attempts to list.")  # fmt: skip  # noqa: E501
@click.option("-f", "--follow", is_flag=True, help="Print attempts as they end, until Ctrl-C.")
@pass_screen
def attempts(
    screen: Screen,
    state: tuple[str, ...],
    job: str | None,
    user: str | None,
    node: str | None,
    since: str | None,
    after: str | None,
    limit: int,
    follow: bool,
) -> None:
    """The newest is last. Attempts are in the order in which their ends were committed."""
    from itertools import islice

    from hal.cli.kit.instants import ago_ms

    filters: dict[str, Any] = {"state": state, "job": job, "user": user, "node": node}
    if since is not None:
        filters["since_ms"] = ago_ms(since, "--since")
    lost = _Lost(screen)
    newest = limit if after is None else None
    found = screen.client.attempts(after, newest=newest, follow=follow, on_lost=lost, **filters)
    if not follow:
        rows = list(islice(found, limit))
        screen.show(rows, lambda: _table(screen, rows))
        return
    try:
        for row in found:
            if screen.plain:
                screen.item(row)
            else:
                screen.line("  ".join(_cells(row)).rstrip())
            screen.out.flush()
    except KeyboardInterrupt:
        return


class _Lost:
    """Notes what is no longer kept."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, first: int, last: int) -> None:
        self._screen.note(f"ended attempts {first} to {last} are no longer kept")


def _table(screen: Screen, rows: list[EndedAttemptInfo]) -> None:
    screen.table(COLUMNS, [_cells(row) for row in rows])
    if not rows:
        screen.note("no ended attempt matches")


def _cells(row: EndedAttemptInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant, span

    ran_ms = None if row.start_ms is None else row.end_ms - row.start_ms
    code = f"signal {row.signal}" if row.signal else "" if row.exit_code is None else str(row.exit_code)
    reason = row.message or ("" if row.cause == "exited" else row.cause)
    return (row.id, row.user, row.state.value, code, ",".join(row.nodes), span(ran_ms), instant(row.end_ms), reason)
