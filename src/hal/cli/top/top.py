"""`hal top`: watch nodes, queues, jobs and sessions on a terminal, and act on them."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.top.listings import Listing
    from hal.cli.top.reading import Reading
    from hal.client.async_client import AsyncClient

DEFAULT_EVERY_S = 1.0
LEAST_EVERY_S = 0.5
DEFAULT_JOBS = 1_000
MAX_JOBS = 10_000
DEFAULT_ROWS = 20
"""Of a frame that is printed, where nobody says how many."""
NAMES = ("jobs", "nodes", "queues", "sessions")


@command(
    "top",
    output=True,
    examples="""
    hal top                        # ? shows the keys, q quits
    hal top user=alice             # begin with a filter
    hal top --once                 # print one frame, for scripts
    hal top --once --view nodes
    hal top --once -o json | jq .jobs
    """,
)
@click.argument("filters", metavar="[FILTER]...", nargs=-1)
@click.option(
    "-i",
    "--interval",
    "every_s",
    type=click.FloatRange(LEAST_EVERY_S, 3600),
    default=DEFAULT_EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two rounds.",
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option("--view", type=click.Choice(NAMES), default="jobs", show_default=True, help="The list to begin with.")
@click.option("--rows", type=click.IntRange(1), default=DEFAULT_ROWS, show_default=True, help="With --once: most rows.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_JOBS),
    default=DEFAULT_JOBS,
    show_default=True,
    help="Most jobs to list: so many that run, and so many that wait.",
)
@pass_screen
def top(
    screen: Screen, filters: tuple[str, ...], every_s: float, once: bool, view: str, rows: int, limit: int
) -> int | None:
    """It refreshes itself about once a second. Keys cancel, hold and release jobs, show why one waits, and follow its
    output; what you may not do is refused.

    FILTER: words to look for, and for jobs user=NAME, state=, queue=, name=, account=, label=, node=.
    """
    if screen.plain:
        once = True
    if not once:
        if not (screen.stdin.isatty() and screen.err.isatty()):
            raise click.UsageError("hal top needs a terminal; hal top --once prints one frame")
        if os.environ.get("TERM", "") in ("", "dumb"):
            raise click.UsageError("this terminal (TERM) cannot be drawn on; hal top --once prints one frame")
    return asyncio.run(_run(screen, " ".join(filters), every_s, once, view, rows, limit))


async def _run(screen: Screen, text: str, every_s: float, once: bool, view: str, rows: int, limit: int) -> int | None:
    from hal.cli.top.listings import LISTINGS
    from hal.client.async_client import AsyncClient
    from hal.client.rest.access_calls import who_am_i

    shown = LISTINGS[NAMES.index(view)]
    # A controller that goes away is shown at once; asking again is this program's own loop.
    async with AsyncClient(screen.address, reconnect_s=0.0) as client:
        who = await client.call(who_am_i())
        if once:
            await _print_frame(screen, client, shown, text, rows, limit)
            return None
        from hal.cli.top.app import TopApp

        app = TopApp(client, where=screen.address.named, every_s=every_s, most_jobs=limit, user=who.user, text=text)
        app.listing = shown
        return await app.run_async(mouse=False)


async def _print_frame(screen: Screen, client: AsyncClient, shown: Listing, text: str, rows: int, limit: int) -> None:
    """One frame, as text or as JSON."""
    from hal.cli.top.frame import header_lines, table_lines
    from hal.cli.top.listings import JOBS, Filter, chosen_rows, read_filter
    from hal.cli.top.reading import Reading

    reading = Reading(client, limit)
    wanted = read_filter(text) if shown is JOBS else Filter({}, tuple(text.lower().split()))
    reading.ask_for(wanted, ended=False)
    await reading.whole(shown)
    now_ms = reading.now_ms
    found = chosen_rows(shown, reading.rows(shown), wanted.words, shown.order, now_ms)[:rows]
    if screen.plain:
        screen.emit(_plain(reading, shown, [row for _, row in found]))
        return
    width = shutil.get_terminal_size((80, 24)).columns
    heading, lines, _ = table_lines(shown, found, now_ms, width)
    for line in (*header_lines(reading, screen.address.named), "", heading, *lines):
        screen.line(line.rstrip())


def _plain(reading: Reading, shown: Listing, found: list[Any]) -> dict[str, Any]:
    return {"now_ms": reading.now_ms, "health": reading.health, shown.name: found}
