"""`hal licences`: list licences and their use."""

from __future__ import annotations

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

COLUMNS = ("NAME", "TOTAL", "USED", "BOOKED", "FREE")


@command(
    "licences",
    output=True,
    examples="""
    hal licences
    hal policy set licences.matlab=10       # set how many there are
    hal submit --licence matlab:2 -- ./model
    """,
)
@pass_screen
def licences(screen: Screen) -> None:
    """A licence is an amount that belongs to no node. BOOKED is what active bookings reserve."""
    from hal.client.rest import policy_calls

    found = screen.client.call(policy_calls.licences())
    rows = [(one.name, str(one.total), str(one.used), str(one.booked), str(one.free)) for one in found]

    def render() -> None:
        if rows:
            screen.table(COLUMNS, rows)
        else:
            screen.note("there are no licences; add one: hal policy set licences.NAME=N")

    screen.show(found, render)
