"""`hal login`, `hal logout`, `hal whoami`: which HAL later commands use, and as whom."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import Endpoint
    from hal.client.addresses.login import Login
    from hal.client.rest.access_calls import LoginOffer, WhoInfo

MAX_TOKEN_CHARS: Final = 1_000
DIAL_S: Final = 10.0


@command(
    "login",
    examples="""
    hal login https://hal.example.org:4250            # in the browser, or ask for a token
    hal login https://head:4250 --fingerprint sha256:9f2c…   # shown by hal status on that machine
    hal login https://a:4250,https://b:4250 < token   # several controllers of one HAL; read the token
    hal login unix:///run/hal/api.sock                # on this machine, without a token
    hal login --plain http://10.0.0.2:4250 < token    # without encryption, on a trusted network
    """,
)
@click.argument("there", metavar="URL[,URL…]")
@click.option(
    "--fingerprint",
    metavar="SHA256",
    help="Fingerprint of that HAL's authority (default: trust this machine's; on a terminal, ask).",
)
@click.option("--token", "by_token", is_flag=True, help="Log in with an API token (default without a terminal).")
@click.option("--browser", is_flag=True, help="Log in at the HAL's OpenID Connect provider (default on a terminal).")
@pass_screen
def login(screen: Screen, there: str, fingerprint: str | None, by_token: bool, browser: bool) -> int:
    """Later commands use the HAL at URL, with a token that only you can read.

    If that HAL has an OpenID Connect provider, you confirm the login in a browser on any device. Else an API token is
    asked for, or read from standard input. --home, --url, $HAL_URL and $HAL_HOME override the login.
    """
    if by_token and browser:
        raise click.UsageError("--token and --browser exclude each other")
    from hal.client.addresses.login import Login, keep_login
    from hal.core.model import NotFoundError

    if there.startswith("unix:"):
        if fingerprint:
            raise click.UsageError("--fingerprint: a socket has none; leave the option out")
        if by_token or browser:
            option = "--token" if by_token else "--browser"
            raise click.UsageError(
                f"{option}: on a socket the kernel says who you are; to be somebody else, set HAL_URL and HAL_TOKEN"
            )
        kept = Login(url=there, served_by=_server_of(screen, _unix(there)))
    else:
        from hal.client.addresses.address import Address
        from hal.client.addresses.endpoints import read_endpoints

        endpoints = read_endpoints(there)
        url, plain = ",".join(endpoint.url for endpoint in endpoints), screen.unencrypted
        authority = _authority(screen, endpoints, fingerprint)
        served_by = None if plain else _server_of(screen, Address(endpoints=endpoints))
        kept = Login(url=url, authority=authority, plain=plain, served_by=served_by)
        offer = _offer(kept) if browser or (screen.interactive and not by_token) else None
        if offer is None and browser:
            raise NotFoundError(
                f"{url} has no OpenID Connect provider", hint="log in with a token: hal login --token URL"
            )
        kept = replace(kept, token=_token(screen)) if offer is None else _by_provider(screen, kept, offer)
    who = _who(screen, kept)
    file = keep_login(kept)
    screen.note(f"logged in at {kept.url} as {who.user} ({who.role}); saved in {file}")
    return exit_codes.OK


def _offer(kept: Login) -> LoginOffer | None:
    """How people log in there; None: with tokens only.

    Raises:
        UnreachableError: no controller answers.
    """
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import read_endpoints
    from hal.client.rest import access_calls
    from hal.client.sync_client import Client
    from hal.core.model import DeniedError, NotFoundError

    address = Address(
        endpoints=read_endpoints(kept.url), authority=kept.authority, plain=kept.plain, served_by=kept.served_by
    )
    with Client(address, reconnect_s=0.0) as client:
        try:
            return client.call(access_calls.login_offer())
        except (NotFoundError, DeniedError):  # an earlier HAL refuses what it does not know
            return None


def _by_provider(screen: Screen, kept: Login, offer: LoginOffer) -> Login:
    """The login after a person has confirmed it.

    Raises:
        DeniedError: they, the provider or the HAL refused.
        TimedOutError: they did nothing.
        UnreachableError: the provider does not answer.
    """
    from hal.client.login_renewal import exchanged
    from hal.client.oidc import begin, find_provider, wait_for_consent

    provider = find_provider(offer.issuer, offer.client_id, offer.token)
    question = begin(provider, offer.scopes)
    screen.note(f"open {question.url} in a browser on any device, and enter the code {question.code}")
    if question.complete_url:
        screen.note(f"or open {question.complete_url} and compare the code")
    granted = wait_for_consent(provider, question)
    kept = replace(
        kept,
        refresh=granted.refresh,
        issuer=offer.issuer,
        client_id=offer.client_id,
        token_kind=offer.token,
    )
    return exchanged(kept, granted.token)


def _unix(url: str) -> Address:
    from hal.client.addresses.address import Address

    return Address(socket_path=url.removeprefix("unix:").removeprefix("//"))


def _server_of(screen: Screen, address: Address) -> int | None:
    """User id of whoever serves it on this machine, the only one trusted from then on; None: TLS identifies it.

    Raises:
        DeniedError: it is on another machine, and http:// would send the token unencrypted.
        UnreachableError: nobody serves it.
        ConflictError: several do, and they are not of one user.
    """
    from hal.client.addresses.address import find_server
    from hal.core.model import ConflictError

    found = {
        find_server(address, endpoint)
        for endpoint in address.endpoints or (None,)
        if endpoint is None or not endpoint.tls
    }
    if len(found) > 1:
        raise ConflictError("these URLs are served by several users of this machine", hint="name the URLs of one HAL")
    uid = next(iter(found), None)
    if uid is not None and uid not in (0, os.geteuid()):
        screen.note(f"{address.named} is served by user {_user_name(uid)}; from now on no other user is trusted there")
    return uid


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (user id {uid})"
    except KeyError:
        return f"id {uid}"


def _who(screen: Screen, kept: Login) -> WhoInfo:
    """Who the caller is there, according to the controllers that answer now.

    Raises:
        UnreachableError: none does.
        DeniedError: the token, or whoever answers, is not good.
    """
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import read_endpoints
    from hal.client.rest import access_calls
    from hal.client.sync_client import Client
    from hal.core.model import UnreachableError

    if kept.url.startswith("unix:"):
        with Client(replace(_unix(kept.url), served_by=kept.served_by)) as client:
            return client.call(access_calls.who_am_i())
    found: WhoInfo | None = None
    silent: list[UnreachableError] = []
    for endpoint in read_endpoints(kept.url):
        address = Address(
            endpoints=(endpoint,),
            token=kept.token,
            authority=kept.authority,
            plain=kept.plain,
            served_by=kept.served_by,
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
        screen.note(f"saved, although it does not answer now: {one.message}")
    return found


def _authority(screen: Screen, endpoints: tuple[Endpoint, ...], given: str | None) -> str:
    """The certificate of the authority to trust; '' if this machine's authorities have signed, or nothing is encrypted.

    Raises:
        DeniedError: neither, and the fingerprint was not given or confirmed.
        UnreachableError: no controller answers.
    """
    from hal.client.addresses.address import Address
    from hal.client.addresses.trust import fetch_authority, fingerprint_of, pinned, read_fingerprint
    from hal.core.model import DeniedError, UnreachableError

    secured = [endpoint for endpoint in endpoints if endpoint.tls]
    if not secured:
        if given:
            raise click.UsageError("--fingerprint needs an https:// URL")
        return ""
    wanted = read_fingerprint(given) if given else ""
    last: UnreachableError | None = None
    for endpoint in secured:
        try:
            if wanted:
                return pinned(endpoint, wanted)
            Address(endpoints=(endpoint,)).connect(DIAL_S, endpoint).close()
            return ""
        except UnreachableError as error:
            last = error
        except DeniedError as error:
            if wanted or not screen.interactive:
                raise
            certificate = fetch_authority(endpoint)
            screen.note(f"{error.message}")
            screen.note(f"the authority of that HAL has the fingerprint {fingerprint_of(certificate)}")
            if not click.confirm("is that what `hal status` shows on the controller's machine?", err=True):
                raise
            return certificate
    raise last or UnreachableError("no controller answers")


@command("logout", examples="hal logout")
@pass_screen
def logout(screen: Screen) -> int:
    """Forget the login. A token of a provider's login is revoked, too; an API token stays valid until
    `hal api-token revoke`.
    """
    from hal.client.addresses.login import forget_login, read_login
    from hal.core.model import HALError

    try:
        kept = read_login()
    except HALError:
        kept = None  # it goes, whatever is wrong with it
    if kept is not None and kept.issuer:
        _end(screen, kept)
    screen.note("logged out" if forget_login() else "you were not logged in")
    return exit_codes.OK


def _end(screen: Screen, kept: Login) -> None:
    """Have HAL and the provider forget the login, as far as they answer."""
    from hal.client.addresses.address import Address
    from hal.client.addresses.endpoints import read_endpoints
    from hal.client.oidc import find_provider, revoke
    from hal.client.rest import access_calls
    from hal.client.sync_client import Client
    from hal.core.model import HALError

    address = Address(
        endpoints=read_endpoints(kept.url),
        token=kept.token,
        authority=kept.authority,
        plain=kept.plain,
        served_by=kept.served_by,
    )
    try:
        with Client(address, reconnect_s=0.0) as client:
            client.call(access_calls.log_out())
    except HALError as error:
        screen.note(f"the token was not revoked and ends by itself: {error.message}")
    if kept.refresh:
        try:
            revoke(find_provider(kept.issuer, kept.client_id, kept.token_kind), kept.refresh)
        except HALError as error:
            screen.note(f"the provider was not told: {error.message}")


@command(
    "whoami",
    output=True,
    examples="""
    hal whoami
    hal whoami --rights      # and what you may do
    """,
)
@click.option("--rights", is_flag=True, help="Also list all operations: all, own (yours only), or none.")
@pass_screen
def whoami(screen: Screen, rights: bool) -> None:
    """The user, the role, when the token expires, and what it is restricted to."""
    from hal.cli.kit.formats import instant
    from hal.client.rest import access_calls

    who = screen.client.call(access_calls.who_am_i(rights=rights))
    shown = {
        "User": who.user,
        "Role": who.role,
        "From": who.peer,
        "Token": who.token,
        "Expires": instant(who.expires_ms) if who.expires_ms is not None else "",
        "Accounts": ", ".join(who.accounts),
        "Queues": ", ".join(who.queues),
        "Access": "read-only" if who.read_only else "",
        "Speaks for": f"job {who.job} and what it has submitted" if who.job else "",
    }

    def render() -> None:
        screen.fields(shown)
        if who.rights:
            screen.table(("OPERATION", "REACH"), list(who.rights.items()))

    screen.show(who, render)


def _token(screen: Screen) -> str:
    if screen.interactive:
        text = str(click.prompt("token", hide_input=True, err=True))
    else:
        text = screen.stdin.read(MAX_TOKEN_CHARS)
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise click.UsageError("no token was given; an administrator creates one with `hal api-token create`")
    return text
