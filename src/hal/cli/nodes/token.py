"""`hal token`: the tokens with which other machines join this HAL as nodes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.joining_calls import JoinTokenInfo

ROLES = ("agent", "broker", "worker", "client", "service")
"""That are given certificates, as in `hal.wire.roles`; the first is that of nodes."""
COLUMNS = ("ID", "STATE", "ROLE", "NAME", "USED", "CREATED", "EXPIRES", "USER", "USED BY", "LABELS")

token = NounGroup(
    "token",
    help="With a token, machines can join HAL as nodes, and processes of other roles get certificates, for a limited "
    "time.",
    epilog="Example: hal token create; then on the other machine: hal agent --join TOKEN --controller HOST",
)


@command(
    "create",
    output=True,
    examples="""
    hal token create                   # for any new node, for one hour
    hal token create --expires-in 10m
    hal token create --node n7         # only for n7, even if it is known already
    hal token create --uses any --expires-in 7d --label pool=spot   # for rented machines
    hal token create --role service --name cache-1   # for a service of a plane: hal certificate request
    """,
)
@click.option("--expires-in", metavar="TIME", help="Time for which it is valid (default: 1h, at most 7d).")
@click.option("--node", metavar="NAME", help="Only this node may join with it (default: any new node).")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default=ROLES[0],
    help="Who gets a certificate with it: a node (default: agent), or a process of another role.",
)
@click.option("--name", metavar="NAME", help="Of another role than agent: only this name (default: any new one).")
@click.option("--uses", metavar="N", default="1", help="So many machines may join with it, or 'any' (default: 1).")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="A label for each of these nodes; repeatable.")
@pass_screen
def create(
    screen: Screen,
    expires_in: str | None,
    node: str | None,
    role: str,
    name: str | None,
    uses: str,
    labels: Sequence[str],
) -> None:
    """Create a join token and print it.

    One machine can join with it, once, unless --uses says otherwise. Whoever has the token can become a node, or a
    process of its role, so keep it private.
    """
    from hal.cli.kit.pairs import pairs
    from hal.client.rest import joining_calls

    if uses != "any" and not uses.isdecimal():
        raise click.UsageError(f"--uses: '{uses}' is neither a number nor 'any'")
    count = 0 if uses == "any" else int(uses)
    wanted = {"expires_in": expires_in or "", "node": node or "", "role": role, "name": name or ""}
    made = screen.client.call(joining_calls.create_token(**wanted, uses=count, labels=pairs("--label", labels)))

    def render() -> None:
        screen.line(made.token)
        called = f" --name {made.node}" if made.node else ""
        what = "agent" if made.role == ROLES[0] else f"certificate request DIRECTORY --role {made.role}"
        # Not the token itself: the command lines of a machine are everybody's to read.
        at = f"--controller {here(made.wire)}{called}"
        screen.note(f"on the other machine, run: hal {what} --join - {at} (it reads the token)")

    screen.show(made, render)


@command("list", output=True, examples="hal token list")
@pass_screen
def list_tokens(screen: Screen) -> None:
    """List join tokens.

    Those that were used, revoked or have expired are listed for one more day.
    """
    from hal.cli.kit.formats import instant
    from hal.client.rest import joining_calls

    found = screen.client.call(joining_calls.tokens())

    def cells(one: JoinTokenInfo) -> tuple[str, ...]:
        name, used = one.node or "any", f"{one.used}/{one.uses or 'any'}"
        times = (instant(one.created_ms), instant(one.expires_ms))
        labels = ",".join(f"{key}={value}" for key, value in sorted(one.labels.items()))
        return (one.id, one.state, one.role, name, used, *times, one.user, one.used_by, labels)

    screen.show_list(found, COLUMNS, cells, "there are no join tokens; create one: hal token create")


@command("revoke", output=True, examples="hal token revoke 5f3a09c1")
@click.argument("token_id", metavar="ID")
@pass_screen
def revoke(screen: Screen, token_id: str) -> None:
    """Revoke a join token.

    Machines that have joined with it stay nodes; see `hal node revoke`.
    """
    from hal.client.rest import joining_calls

    revoked = screen.client.call(joining_calls.revoke_token(token_id))
    screen.show(revoked, lambda: screen.line(f"{revoked.id} {revoked.state}"))


def here(wire: str) -> str:
    """The address under which another machine reaches this controller: this machine's name in place of 0.0.0.0."""
    host, _, port = wire.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]", "") else wire


for one in (create, list_tokens, revoke):
    token.add_command(one)
