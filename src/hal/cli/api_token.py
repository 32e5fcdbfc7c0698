"""`hal api-token create|list|revoke`: tokens with which programs and people elsewhere come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.command import CONTEXT, command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.access_calls import TokenInfo

COLUMNS = ("ID", "USER", "ROLE", "STATE", "EXPIRES", "LAST USED", "ONLY", "NOTE")

api_token = click.Group(
    "api-token",
    context_settings=CONTEXT,
    short_help="API tokens: create, list, revoke.",
    help="Tokens with which programs and people on other machines come in. Admins make them.",
    epilog="Example: hal api-token create bob --expires-in 30d",
)


@command(
    "create",
    short_help="Make a token; prints it, once.",
    output=True,
    examples="""
    hal api-token create bob                                # user, for 30 days
    hal api-token create ci --queue nightly --expires-in 90d --note "nightly tests"
    hal api-token create screen --role operator --read-only
    """,
)
@click.argument("user")
@click.option("--role", type=click.Choice(["user", "operator", "admin"]), default="user", help="Default: user.")
@click.option("--expires-in", metavar="TIME", help="Life of the token (default: 30d).")
@click.option("--account", metavar="NAME", multiple=True, help="Only for this account; repeatable.")
@click.option("--queue", metavar="NAME", multiple=True, help="Only for this queue; repeatable.")
@click.option("--read-only", is_flag=True, help="It changes nothing.")
@click.option("--note", metavar="TEXT", default="", help="What it is for.")
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
    """Make a token that acts for USER. It is printed now and never again: HAL keeps only its hash."""
    from hal.client import access_calls
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
        screen.note(f"token {made.token.id} of {made.token.user}; it is not shown again. There: hal login URL")

    screen.show(made, render)


@command("list", short_help="List them, without their secrets.", output=True, examples="hal api-token list")
@pass_screen
def list_tokens(screen: Screen) -> None:
    """List tokens, newest first; those that expired a month ago are gone. The last use is kept to the hour."""
    from hal.cli.wording import instant
    from hal.client import access_calls

    found = screen.client.call(access_calls.tokens())

    def row(one: TokenInfo) -> tuple[str, ...]:
        used = instant(one.used_ms) if one.used_ms is not None else "never"
        return (one.id, one.user, one.role, one.state, instant(one.expires_ms), used, _only(one) or "-", one.note)

    def render() -> None:
        if found:
            screen.table(COLUMNS, [row(one) for one in found])
        else:
            screen.note("there is no token; hal api-token create USER makes one")

    screen.show(found, render)


@command(
    "revoke", short_help="Let it open nothing any more.", output=True, examples="hal api-token revoke 0123456789ab"
)
@click.argument("token")
@pass_screen
def revoke(screen: Screen, token: str) -> None:
    """Revoke the token with id TOKEN, at once and for good."""
    from hal.client import access_calls

    revoked = screen.client.call(access_calls.revoke_token(token))
    screen.show(revoked, lambda: screen.line(f"{revoked.id} {revoked.state}"))


def _only(one: TokenInfo) -> str:
    parts = ["reading"] if one.read_only else []
    parts += [f"account {name}" for name in one.accounts] + [f"queue {name}" for name in one.queues]
    return ", ".join(parts)


api_token.add_command(create)
api_token.add_command(list_tokens)
api_token.add_command(revoke)
