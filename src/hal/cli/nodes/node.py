"""`hal node`: list and show nodes, drain and resume them, remove them, declare one lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.outcomes import report
from hal.cli.kit.progress import Progress
from hal.cli.kit.screen import Screen
from hal.cli.nodes.node_list import list_nodes, show_nodes

if TYPE_CHECKING:
    from hal.client.rest.views import NodeInfo, Outcome

node = NounGroup(
    "node",
    aliases={"uncordon": "resume", "rm": "remove"},
    epilog='Example: hal node drain n2 --reason "new disk"',
)

_names = click.argument("names", metavar="NODE...", nargs=-1, required=True)
_reason = click.option("--reason", metavar="TEXT", default="", help="Reason, shown to everybody.")


@command(
    "cordon",
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
    """Close nodes to new work.

    What runs on them continues. `hal node resume` opens them again.
    """
    return report(screen, screen.client.cordon(*names, reason=reason))


@command(
    "taint",
    output=True,
    examples="""
    hal node taint n2 team=bio      # only work that tolerates it starts on n2
    hal node taint n2,n3 spot
    hal run --tolerate team=bio CMD
    """,
)
@click.argument("names", metavar="NODE[,NODE...]")
@click.argument("taints", metavar="KEY[=VALUE]...", nargs=-1, required=True)
@pass_screen
def taint(screen: Screen, names: str, taints: Sequence[str]) -> int:
    """Keep work away from nodes that does not tolerate a taint.

    Jobs tolerate it by `--tolerate KEY` or `--tolerate KEY=VALUE`. What runs on the nodes continues. A node has one
    value for each key: another one takes its place.
    """
    return report(screen, screen.client.taint(*names.split(","), taints=list(taints)))


@command(
    "untaint",
    output=True,
    examples="""
    hal node untaint n2 team
    hal node untaint n2,n3 team spot
    """,
)
@click.argument("names", metavar="NODE[,NODE...]")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@pass_screen
def untaint(screen: Screen, names: str, keys: Sequence[str]) -> int:
    """Take taints from nodes, by their keys."""
    return report(screen, screen.client.untaint(*names.split(","), keys=list(keys)))


@command(
    "resume",
    output=True,
    examples="""
    hal node resume n2
    """,
)
@_names
@pass_screen
def resume(screen: Screen, names: Sequence[str]) -> int:
    """Open nodes to new work that were cordoned, drained or quarantined."""
    outcomes = screen.client.uncordon(*names)
    code = report(screen, outcomes)
    for one in outcomes:
        if one.ok and one.detail:
            screen.note(f"{one.id} does not accept work yet: {one.detail}")
    return code


@command(
    "drain",
    output=True,
    examples="""
    hal node drain n2 --reason "new disk"     # wait until n2 is empty
    hal node drain n2 n3 --timeout 2h
    hal node drain n2 --no-wait
    hal node drain n2 --evict requeue --within 2h     # after two hours, what is left runs elsewhere
    hal node drain n2 --move            # only if all of it may be moved, has room elsewhere, and that pays
    """,
)
@_names
@_reason
@click.option(
    "--evict",
    type=click.Choice(["requeue", "checkpoint", "cancel"]),
    help="Evict what does not end within --within: run it again elsewhere, let it save its work first, or cancel it.",
)
@click.option("--within", metavar="TIME", default="", help="With --evict: time to end before that (default: none).")
@click.option("--grace", metavar="TIME", default="", help="With --evict: from there to SIGKILL (default: 30s).")
@click.option(
    "--move",
    is_flag=True,
    help="Move the work of one node at once, if all of it is movable and has room elsewhere, and that pays.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until the nodes are empty (default).")
@click.option("--timeout", metavar="TIME", help="Wait at most TIME, else exit with code 124; the nodes stay closed.")
@pass_screen
def drain(
    screen: Screen,
    names: Sequence[str],
    reason: str,
    evict: str | None,
    within: str,
    grace: str,
    move: bool,
    wait: bool,
    timeout: str | None,
) -> int:
    """Close nodes to new work and wait until they are empty.

    What runs on them continues to its end, unless it is evicted (--evict). `hal node resume` opens them again.
    """
    from hal.core.model import parse_duration

    if not evict and (within or grace):
        raise click.UsageError("--within and --grace are about an eviction; add --evict MODE")
    timeout_s = parse_duration(timeout, field="--timeout") / 1000 if timeout is not None else None
    names = list(dict.fromkeys(names))
    outcomes = screen.client.drain(*names, reason=reason, evict=evict or "", within=within, grace=grace, move=move)
    if not wait:
        return report(screen, outcomes)
    refused = [one for one in outcomes if not one.ok]
    code = report(screen, refused) if refused else exit_codes.OK
    try:
        return max(code, _wait_drained(screen, [one for one in outcomes if one.ok], timeout_s))
    except KeyboardInterrupt:
        screen.note("interrupted; the nodes stay closed to new work (open them: hal node resume)")
        return exit_codes.INTERRUPTED


def _wait_drained(screen: Screen, drained: Sequence[Outcome], timeout_s: float | None) -> int:
    """Wait for each node, and print when it is empty.

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
            progress.show(f"{len(empty)} of {len(drained)} nodes are empty, {held} left on {info.name}, {waited}")

        for one in drained:
            left_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - since_s))
            info = screen.client.wait_drained(one.id, left_s, seen=seen)
            empty.append(info)
            progress.clear()
            if info.running:
                code = exit_codes.CONFLICT
                screen.note(f"{info.name} is no longer being drained: it is {info.state}")
            elif not screen.plain and not screen.quiet:
                screen.line(f"{info.name} is empty and {info.state}")
    if screen.plain:
        screen.emit(empty)
    return code


@command(
    "remove",
    output=True,
    examples="""
    hal node drain n2 && hal node remove n2
    """,
)
@_names
@pass_screen
def remove(screen: Screen, names: Sequence[str]) -> int:
    """Remove nodes that are lost, or closed and empty.

    A node whose agent is started again comes back as a new node.
    """
    outcomes = screen.client.remove_nodes(*names)
    code = report(screen, outcomes)
    gone = [one.id for one in outcomes if one.ok]
    if gone:
        they, agents = ("it comes", "agent") if len(gone) == 1 else ("they come", "agents")
        screen.note(f"{they} back as new if the {agents} there {'is' if len(gone) == 1 else 'are'} started again")
    return code


@command(
    "fence",
    output=True,
    examples="""
    hal node fence n2        # ask for confirmation
    hal node fence n2 --yes
    hal node fence n2 --gone --yes --reason "the cloud has deleted it"
    """,
)
@click.argument("name")
@click.option(
    "--gone",
    is_flag=True,
    help="Its machine no longer exists: do not wait until it is unreachable, and accept it only after a restart.",
)
@_reason
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_screen
def fence(screen: Screen, name: str, gone: bool, reason: str, yes: bool) -> int:
    """Declare a node lost, so that its tasks run again elsewhere.

    Do this only if nothing runs on the node any more, for instance because it was switched off. HAL cannot check that,
    and tasks that still run there would run twice.
    """
    found = screen.client.node(name)
    if not yes:
        risk = "tasks that still run there would run twice"
        if not screen.interactive:
            raise click.UsageError(f"node {name} is {found.state}, and {risk}; add --yes if none does")
        if not screen.ask(f"node {name} is {found.state}; declare it lost ({risk})?"):
            return exit_codes.OK
    fenced = screen.client.fence(name, machine_gone=gone, reason=reason)
    screen.show(fenced, lambda: screen.line(f"{name} {fenced.state}"))
    return exit_codes.OK


@command(
    "revoke",
    output=True,
    examples="""
    hal node revoke n7
    hal token create --node n7   # a token to join again
    """,
)
@click.argument("name")
@pass_screen
def revoke(screen: Screen, name: str) -> None:
    """Revoke the certificates of a node that joined over the network.

    Its connection is closed, and it is refused until it joins again. What runs on it continues, as on a node that is
    unreachable; `hal node fence` declares it lost.
    """
    from hal.client.rest import joining_calls

    found = screen.client.call(joining_calls.revoke_node(name))
    screen.show(found, lambda: screen.line(f"{found.name}: certificates revoked"))


for one in (list_nodes, show_nodes, cordon, drain, resume, taint, untaint, remove, fence, revoke):
    node.add_command(one)
