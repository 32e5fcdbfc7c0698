"""`hal node fence`: declare a node gone, so that what ran there may run again elsewhere."""

from __future__ import annotations

import click

from hal.cli import exit_codes
from hal.cli.command import CONTEXT, command, pass_screen
from hal.cli.screen import Screen

node = click.Group(
    "node",
    context_settings=CONTEXT,
    short_help="Act on one node.",
    help="Act on one node. `hal nodes` lists them.",
    epilog="Example: hal node fence n2",
)


@command(
    "fence",
    short_help="Declare a node gone.",
    output=True,
    examples="""
    hal node fence n2        # asks first
    hal node fence n2 --yes
    """,
)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_screen
def fence(screen: Screen, name: str, yes: bool) -> int:
    """Declare node NAME gone for good: its attempts are lost, their tasks run again elsewhere.

    Do this only when nothing runs on it any more (it was switched off, say): HAL cannot know that, and what runs there
    still would run twice.
    """
    found = screen.client.node(name)
    if not yes:
        if not screen.interactive:
            raise click.UsageError(f"nothing may run on {name} any more; add --yes if that is so")
        if not screen.ask(f"node {name} is {found.state}; does nothing run on it any more?"):
            return exit_codes.OK
    fenced = screen.client.fence(name)
    screen.show(fenced, lambda: screen.line(f"{name} {fenced.state}"))
    return exit_codes.OK


node.add_command(fence)
