"""`hal token`: tokens with which other machines join this HAL."""

from __future__ import annotations

import socket

import click

from hal.cli.command import CONTEXT, command, pass_screen
from hal.cli.screen import Screen

COLUMNS = ("ID", "STATE", "NODE", "CREATED", "EXPIRES", "USER", "USED BY")

token = click.Group(
    "token",
    context_settings=CONTEXT,
    short_help="Tokens with which other machines join.",
    help="Tokens with which other machines join this HAL: one machine each, once, for a while.",
    epilog="Example: hal token create, then on the other machine: hal agent --join TOKEN --controller HOST",
)


@command(
    "create",
    short_help="Make one; prints it.",
    output=True,
    examples="""
    hal token create                   # good for an hour, for any new node
    hal token create --expires-in 10m
    hal token create --node n7         # only for n7, also when it is known already
    """,
)
@click.option("--expires-in", metavar="TIME", help="How long it may be used (default: 1h, at most 7d).")
@click.option("--node", metavar="NAME", help="The only node that may join with it (default: any new one).")
@pass_screen
def create(screen: Screen, expires_in: str | None, node: str | None) -> None:
    """Make a token with which one machine joins, once. Whoever has it may become a node: pass it on in private."""
    from hal.client import joining_calls

    made = screen.client.call(joining_calls.create_token(expires_in=expires_in or "", node=node or ""))

    def render() -> None:
        screen.line(made.token)
        name = f" --name {made.node}" if made.node else ""
        # Not the token itself: the command lines of a machine are everybody's to read.
        screen.note(
            f"on the other machine: hal agent --join - --controller {here(made.wire)}{name}; it reads the token"
        )

    screen.show(made, render)


@command("list", short_help="List them.", output=True, examples="hal token list")
@pass_screen
def list_tokens(screen: Screen) -> None:
    """List join tokens: those that may be used, and for a day those that were or may not any more."""
    from hal.cli.wording import instant
    from hal.client import joining_calls

    found = screen.client.call(joining_calls.tokens())
    rows = [
        (one.id, one.state, one.node or "any", instant(one.created_ms), instant(one.expires_ms), one.user, one.used_by)
        for one in found
    ]

    def render() -> None:
        if rows:
            screen.table(COLUMNS, rows)
        else:
            screen.note("there are no join tokens; hal token create makes one")

    screen.show(found, render)


@command("revoke", short_help="Let nobody join with one.", output=True, examples="hal token revoke 5f3a09c1")
@click.argument("token_id", metavar="ID")
@pass_screen
def revoke(screen: Screen, token_id: str) -> None:
    """Let nobody join with token ID any more. Of a token that was used, see `hal node revoke`."""
    from hal.client import joining_calls

    revoked = screen.client.call(joining_calls.revoke_token(token_id))
    screen.show(revoked, lambda: screen.line(f"{revoked.id} {revoked.state}"))


def here(wire: str) -> str:
    """How another machine reaches where this controller listens: this machine's name in place of any address."""
    host, _, port = wire.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]", "") else wire


for one in (create, list_tokens, revoke):
    token.add_command(one)
