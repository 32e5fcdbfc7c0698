"""`hal api-token`: the tokens with which programs and people on other machines use HAL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.access_calls import TokenInfo

COLUMNS = ("ID", "USER", "ROLE", "STATE", "EXPIRES", "LAST USED", "RESTRICTED TO", "NOTE")

api_token = NounGroup(
    "api-token",
    help="With an API token, programs and people on other machines use HAL. Only administrators create them.",
    epilog="Example: hal api-token create bob --expires-in 30d",
)


@command(
    "create",
    output=True,
    examples="""
    hal api-token create bob                                # role user, valid for 30 days
    hal api-token create ci --queue nightly --expires-in 90d --note "nightly tests"
    hal api-token create screen --role operator --read-only
    """,
)
@click.argument("user")
@click.option("--role", type=click.Choice(["user", "operator", "admin"]), default="user", help="Role (default: user).")
@click.option("--expires-in", metavar="TIME", help="Time for which it is valid (default: 30d).")
@click.option("--account", metavar="NAME", multiple=True, help="Restrict it to this account; repeatable.")
@click.option("--queue", metavar="NAME", multiple=True, help="Restrict it to this queue; repeatable.")
@click.option("--read-only", is_flag=True, help="Allow reading only.")
@click.option("--note", metavar="TEXT", default="", help="Note on what it is for.")
@pass_screen
def create(
    screen: Screen,
    user: str,
    role: str,
    expires_in: str | None,
    account: Sequence[str],
    queue: Sequence[str],
    read_only: bool,
    note: str,
) -> None:
    """Create an API token that acts for USER, and print it.

    It is printed only this once: HAL keeps its hash.
    """
    from hal.client.rest import access_calls
    from hal.core.model import parse_duration

    fields: dict[str, object] = {
        "user": user,
        "role": role,
        "accounts": list(account),
        "queues": list(queue),
        "read_only": read_only,
        "note": note,
    }
    if expires_in is not None:
        fields["expires_in"] = str(parse_duration(expires_in, field="--expires-in"))
    made = screen.client.call(access_calls.create_token(fields))

    def render() -> None:
        screen.line(made.secret)
        screen.note(f"token {made.token.id} of {made.token.user} is not shown again; to use it: hal login URL")

    screen.show(made, render)


@command("list", output=True, examples="hal api-token list")
@pass_screen
def list_tokens(screen: Screen) -> None:
    """List API tokens, newest first, without their secrets.

    LAST USED is precise to the hour. Tokens are removed a month after they have expired.
    """
    from hal.cli.kit.formats import instant
    from hal.client.rest import access_calls

    found = screen.client.call(access_calls.tokens())

    def row(one: TokenInfo) -> tuple[str, ...]:
        used = instant(one.used_ms) if one.used_ms is not None else "never"
        return (one.id, one.user, one.role, one.state, instant(one.expires_ms), used, _only(one) or "-", one.note)

    screen.show_list(found, COLUMNS, row, "there are no API tokens; create one: hal api-token create USER")


@command("revoke", output=True, examples="hal api-token revoke 0123456789ab")
@click.argument("token", metavar="ID")
@pass_screen
def revoke(screen: Screen, token: str) -> None:
    """Revoke an API token, at once and for good."""
    from hal.client.rest import access_calls

    revoked = screen.client.call(access_calls.revoke_token(token))
    screen.show(revoked, lambda: screen.line(f"{revoked.id} {revoked.state}"))


def _only(one: TokenInfo) -> str:
    parts = ["read-only"] if one.read_only else []
    parts += [f"account {name}" for name in one.accounts] + [f"queue {name}" for name in one.queues]
    return ", ".join(parts)


api_token.add_command(create)
api_token.add_command(list_tokens)
api_token.add_command(revoke)
