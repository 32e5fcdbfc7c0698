"""`hal node`: close nodes to new work, open them again, empty them, forget them, declare one gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli import exit_codes
from hal.cli.command import CONTEXT, command, pass_screen
from hal.cli.outcomes import report
from hal.cli.progress import Progress
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import NodeInfo, Outcome

node = click.Group(
    "node",
    context_settings=CONTEXT,
    short_help="Act on nodes.",
    help="Act on nodes. `hal nodes` lists them.",
    epilog='Example: hal node drain n2 --reason "new disk"',
)

_names = click.argument("names", metavar="NODE...", nargs=-1, required=True)
_reason = click.option("--reason", metavar="TEXT", default="", help="Kept with the node and shown to everybody.")


@command(
    "cordon",
    short_help="Let nothing new start on nodes.",
    output=True,
    examples="""
    hal node cordon n2 --reason "looks slow"
    hal node cordon n2 n3 n4
    """,
)
@_names
@_reason
@pass_screen
def cordon(screen: Screen, names: Sequence[str], reason: str) -> int:
    """Let nothing new start on NODEs until they are uncordoned. What runs there goes on."""
    return report(screen, screen.client.cordon(*names, reason=reason))


@command(
    "uncordon",
    short_help="Let work start on nodes again.",
    output=True,
    examples="""
    hal node uncordon n2
    """,
)
@_names
@pass_screen
def uncordon(screen: Screen, names: Sequence[str]) -> int:
    """Let work start again on NODEs that were cordoned, drained, or put in quarantine for what they said."""
    outcomes = screen.client.uncordon(*names)
    code = report(screen, outcomes)
    for one in outcomes:
        if one.ok and one.detail:
            screen.note(f"{one.id} is not open yet: {one.detail}")
    return code


@command(
    "drain",
    short_help="Empty nodes, and let nothing new start.",
    output=True,
    examples="""
    hal node drain n2 --reason "new disk"     # waits until n2 is empty
    hal node drain n2 n3 --timeout 2h
    hal node drain n2 --no-wait
    """,
)
@_names
@_reason
@click.option("--wait/--no-wait", default=True, help="Wait until they are empty (default).")
@click.option("--timeout", metavar="TIME", help="Wait at most so long (exit code 124); they stay closed.")
@pass_screen
def drain(screen: Screen, names: Sequence[str], reason: str, wait: bool, timeout: str | None) -> int:
    """Cordon NODEs and wait until what runs there has ended. They stay cordoned until they are uncordoned."""
    from hal.core.model import parse_duration

    timeout_s = parse_duration(timeout, field="--timeout") / 1000 if timeout is not None else None
    names = list(dict.fromkeys(names))
    outcomes = screen.client.drain(*names, reason=reason)
    if not wait:
        return report(screen, outcomes)
    refused = [one for one in outcomes if not one.ok]
    code = report(screen, refused) if refused else exit_codes.OK
    try:
        return max(code, _wait_drained(screen, [one for one in outcomes if one.ok], timeout_s))
    except KeyboardInterrupt:
        screen.note("interrupted; the nodes stay closed to new work")
        return exit_codes.INTERRUPTED


def _wait_drained(screen: Screen, drained: Sequence[Outcome], timeout_s: float | None) -> int:
    """Say of each when it is empty.

    Raises:
        TimedOutError: `timeout_s` passed.
    """
    from hal.core.model import plural

    since_s = time.monotonic()
    empty: list[NodeInfo] = []
    code = exit_codes.OK
    with Progress(screen) as progress:

        def seen(info: NodeInfo) -> None:
            waited = f"{time.monotonic() - since_s:.0f} s"
            held = plural(info.running, "task")
            progress.say(f"{len(empty)} of {len(drained)} nodes empty, {held} left on {info.name}, {waited}")

        for one in drained:
            left_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - since_s))
            info = screen.client.wait_drained(one.id, left_s, seen=seen)
            empty.append(info)
            progress.clear()
            if info.running:
                code = exit_codes.CONFLICT
                screen.note(f"{info.name} is not being drained any more: it is {info.state}")
            elif not screen.plain and not screen.quiet:
                screen.line(f"{info.name} is empty and {info.state}")
    if screen.plain:
        screen.emit(empty)
    return code


@command(
    "rm",
    short_help="Forget nodes that are gone or empty.",
    output=True,
    examples="""
    hal node drain n2 && hal node rm n2
    """,
)
@_names
@pass_screen
def rm(screen: Screen, names: Sequence[str]) -> int:
    """Forget NODEs that are gone, or cordoned and empty. One comes back, as a new node, when its agent is started."""
    outcomes = screen.client.remove_nodes(*names)
    code = report(screen, outcomes)
    gone = [one.id for one in outcomes if one.ok]
    if gone:
        it, comes = ("it", "comes") if len(gone) == 1 else ("they", "come")
        screen.note(f"{it} {comes} back as new when the agent there is started again")
    return code


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


@command(
    "revoke",
    short_help="Take back the certificates of a node that joined.",
    output=True,
    examples="""
    hal node revoke n7
    hal token create --node n7   # lets it join again
    """,
)
@click.argument("name")
@pass_screen
def revoke(screen: Screen, name: str) -> None:
    """Take back every certificate of node NAME: its connection is closed, and it is refused until it joins again.

    What runs there goes on, as when the node is not heard; `hal node fence` declares it gone.
    """
    from hal.client import joining_calls

    found = screen.client.call(joining_calls.revoke_node(name))
    screen.show(found, lambda: screen.line(f"{found.name}: its certificates are revoked"))


for one in (cordon, uncordon, drain, rm, fence, revoke):
    node.add_command(one)
