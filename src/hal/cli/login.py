"""`hal login`, `hal logout`, `hal whoami`: which HAL later commands speak to, and as whom."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.access_calls import WhoInfo
    from hal.client.address import Address
    from hal.client.login import Login
    from hal.client.places import Place

MAX_TOKEN_CHARS: Final = 1_000
DIAL_S: Final = 10.0


@command(
    "login",
    short_help="Speak to another HAL from now on.",
    examples="""
    hal login https://hal.example.org:4250            # asks for the token
    hal login https://head:4250 --fingerprint sha256:9f2c…   # HAL's own authority; hal status there tells it
    hal login https://a:4250,https://b:4250 < token   # several controllers of one HAL; reads the token
    hal login unix:///run/hal/api.sock                # on its machine: the kernel says who you are
    hal login --plain http://10.0.0.2:4250 < token    # in plain text, on a network that you trust
    """,
)
@click.argument("there", metavar="URL[,URL…]")
@click.option(
    "--fingerprint",
    metavar="SHA256",
    help="Believe that HAL's own authority (default: those of this machine; on a terminal you are asked).",
)
@pass_screen
def login(screen: Screen, there: str, fingerprint: str | None) -> int:
    """Keep URL and a token for it, so that later commands speak to that HAL; only you may read the file.

    The token is asked for without showing it, or read from standard input. --home, --url, $HAL_URL and $HAL_HOME go
    before what is kept.
    """
    from hal.client.login import Login, keep_login

    if there.startswith("unix:"):
        if fingerprint:
            raise click.UsageError("--fingerprint: a socket of this machine has none")
        kept = Login(url=there, served_by=_server_of(screen, _unix(there)))
    else:
        from hal.client.address import Address
        from hal.client.places import read_places

        places = read_places(there)
        url, plain = ",".join(place.url for place in places), screen.unencrypted
        authority = _authority(screen, places, fingerprint)
        served_by = None if plain else _server_of(screen, Address(places=places))
        kept = Login(url=url, token=_token(screen), authority=authority, plain=plain, served_by=served_by)
    who = _who(screen, kept)
    file = keep_login(kept)
    screen.note(f"you are {who.user} ({who.role}) at {kept.url}; kept in {file}")
    return exit_codes.OK


def _unix(url: str) -> Address:
    from hal.client.address import Address

    return Address(socket_path=url.removeprefix("unix:").removeprefix("//"))


def _server_of(screen: Screen, address: Address) -> int | None:
    """User id of whoever serves it on this machine, which from then on nobody else may; None: TLS says who it is.

    Raises:
        DeniedError: it is another machine, and http:// would send the token there in plain text.
        UnreachableError: nobody serves it.
        ConflictError: several do, and they are not of one user.
    """
    from hal.client.answering import find_server
    from hal.core.model import ConflictError

    found = {find_server(address, place) for place in address.places or (None,) if place is None or not place.tls}
    if len(found) > 1:
        raise ConflictError("several users serve these URLs on this machine", hint="name those of one HAL")
    uid = next(iter(found), None)
    if uid is not None and uid not in (0, os.geteuid()):
        screen.note(f"user {_user_name(uid)} serves {address.named}; nobody else is believed there from now on")
    return uid


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (user id {uid})"
    except KeyError:
        return f"with the id {uid}"


def _who(screen: Screen, kept: Login) -> WhoInfo:
    """Who the caller is there, as each of its controllers says that answers now.

    Raises:
        UnreachableError: none does.
        DeniedError: the token, or whoever answers, is not good.
    """
    from hal.client import access_calls
    from hal.client.address import Address
    from hal.client.places import read_places
    from hal.client.sync import Client
    from hal.core.model import UnreachableError

    if kept.url.startswith("unix:"):
        with Client(replace(_unix(kept.url), served_by=kept.served_by)) as client:
            return client.call(access_calls.who_am_i())
    found: WhoInfo | None = None
    silent: list[UnreachableError] = []
    for place in read_places(kept.url):
        address = Address(
            places=(place,), token=kept.token, authority=kept.authority, plain=kept.plain, served_by=kept.served_by
        )
        with Client(address, reconnect_s=0.0) as client:
            try:
                found = client.call(access_calls.who_am_i())
            except UnreachableError as error:
                silent.append(error)
    if found is None:
        raise (
            silent[0]
            if len(silent) == 1
            else UnreachableError("; ".join(error.message for error in silent), hint=silent[0].hint)
        )
    for one in silent:
        screen.note(f"kept, though it does not answer now: {one.message}")
    return found


def _authority(screen: Screen, places: tuple[Place, ...], told: str | None) -> str:
    """The certificate of the authority to believe; '' where those of this machine have signed what is shown, or nothing
    is encrypted.

    Raises:
        DeniedError: neither, and nobody said or confirmed the fingerprint.
        UnreachableError: no controller answers.
    """
    from hal.client.address import Address
    from hal.client.trust import fetch_authority, fingerprint_of, pinned, read_fingerprint
    from hal.core.model import DeniedError, UnreachableError

    secured = [place for place in places if place.tls]
    if not secured:
        if told:
            raise click.UsageError("--fingerprint: goes with https:// only")
        return ""
    wanted = read_fingerprint(told) if told else ""
    last: UnreachableError | None = None
    for place in secured:
        try:
            if wanted:
                return pinned(place, wanted)
            Address(places=(place,)).connect(DIAL_S, place).close()
            return ""
        except UnreachableError as error:
            last = error
        except DeniedError as error:
            if wanted or not screen.interactive:
                raise
            certificate = fetch_authority(place)
            screen.note(f"{error.message}")
            screen.note(f"HAL's own authority there has the fingerprint {fingerprint_of(certificate)}")
            if not click.confirm("is that what `hal status` tells on the controller's machine?", err=True):
                raise
            return certificate
    raise last or UnreachableError("no controller answers")


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
