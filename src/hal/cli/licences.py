"""`hal licences`: amounts of the whole cluster."""

from __future__ import annotations

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

COLUMNS = ("NAME", "TOTAL", "USED", "BOOKED", "FREE")


@command(
    "licences",
    short_help="List licences: total, used, free, booked.",
    output=True,
    examples="""
    hal licences
    hal policy set licences.matlab=10       # how many there are
    hal submit --licence matlab:2 -- ./model
    """,
)
@pass_screen
def licences(screen: Screen) -> None:
    """List licences and other amounts of the whole cluster: how many there are, are used, booked now, and free."""
    from hal.client import policy_calls

    found = screen.client.call(policy_calls.licences())
    rows = [(one.name, str(one.total), str(one.used), str(one.booked), str(one.free)) for one in found]

    def render() -> None:
        if rows:
            screen.table(COLUMNS, rows)
        else:
            screen.note("no licence is declared; hal policy set licences.NAME=N declares one")

    screen.show(found, render)
