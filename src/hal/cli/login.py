"""`hal login`, `hal logout`, `hal whoami`: which HAL later commands speak to, and as whom."""

from __future__ import annotations

import click

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

MAX_TOKEN_CHARS = 1_000


@command(
    "login",
    short_help="Speak to another HAL from now on.",
    examples="""
    hal login https://hal.example.org:4250            # asks for the token
    hal login http://127.0.0.1:4250 < token           # or reads it
    hal login unix:///run/hal/api.sock                # on its machine: the kernel says who you are
    """,
)
@click.argument("there", metavar="URL")
@pass_screen
def login(screen: Screen, there: str) -> int:
    """Keep URL and a token for it, so that later commands speak to that HAL; only you may read the file.

    The token is asked for without showing it, or read from standard input. --home, --url, $HAL_URL and $HAL_HOME go
    before what is kept.
    """
    from hal.client import access_calls
    from hal.client.address import find_address
    from hal.client.login import Login, keep_login
    from hal.client.sync import Client

    local = there.startswith("unix:")
    token = "" if local else _token(screen)
    with Client(find_address(url=there, token=token or None)) as client:
        who = client.call(access_calls.who_am_i())
    file = keep_login(Login(url=there, token=token))
    screen.note(f"you are {who.user} ({who.role}) at {there}; kept in {file}")
    return exit_codes.OK


@command("logout", short_help="Forget what hal login kept.", examples="hal logout")
@pass_screen
def logout(screen: Screen) -> int:
    """Forget the HAL and the token that `hal login` kept. The token itself stays valid: `hal api-token revoke`."""
    from hal.client.login import forget_login

    screen.note("logged out" if forget_login() else "you were not logged in")
    return exit_codes.OK


@command("whoami", short_help="Who you are to HAL.", output=True, examples="hal whoami")
@pass_screen
def whoami(screen: Screen) -> None:
    """User, role, and what the token is narrowed to."""
    from hal.cli.wording import instant
    from hal.client import access_calls

    who = screen.client.call(access_calls.who_am_i())
    shown = {
        "User": who.user,
        "Role": who.role,
        "From": who.peer,
        "Token": who.token,
        "Expires": instant(who.expires_ms) if who.expires_ms is not None else "",
        "Accounts": ", ".join(who.accounts),
        "Queues": ", ".join(who.queues),
        "Only": "reading" if who.read_only else "",
    }
    screen.show(who, lambda: screen.fields(shown))


def _token(screen: Screen) -> str:
    if screen.interactive:
        text = str(click.prompt("token", hide_input=True, err=True))
    else:
        text = screen.stdin.read(MAX_TOKEN_CHARS)
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise click.UsageError("no token was given; an admin makes one with `hal api-token create`")
    return text
