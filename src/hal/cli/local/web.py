"""`hal web`: serve the page in the foreground; or get a sign-in link of the page that is served already."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.runtime.home import Home

SOCKET: Final = "web.sock"
LINK_PATH: Final = "/v1/sign-in-links"
TIMEOUT_S: Final = 5.0
MAX_LINK_BYTES: Final = 4_096


@command(
    "web",
    examples="""
    hal web --open
    hal web --listen 127.0.0.1:8080
    hal web --link         # a sign-in link of the page that is served already
    hal up --with web      # serve it beside HAL, now and from now on
    """,
)
@click.option(
    "--listen", metavar="HOST:PORT", default="", help="Where to serve it; default: 127.0.0.1:4280, or hal.toml."
)
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A further name by which browsers reach it.")
@click.option("--open", "browse", is_flag=True, help="Open it in a browser.")
@click.option("--link", "link_only", is_flag=True, help="Only print a sign-in link of the page that is served.")
@pass_screen
def web(screen: Screen, listen: str, hosts: tuple[str, ...], browse: bool, link_only: bool) -> None:
    """Shows jobs, queues and nodes in a browser, live. The link that is printed signs in once, within ten minutes, with
    the rights of whoever starts this; others sign in with an API token.

    Where the page is served already, a new link is printed.
    """
    from hal.core.model import ConflictError
    from hal.runtime.home import find_home

    home = screen.address.home or find_home()
    served = sign_in_link(home)
    if served:
        if (listen or hosts) and not link_only:
            raise ConflictError(
                "the page is served already", hint=f"without options: a link; it is {served.split('/sign-in')[0]}"
            )
        screen.line(served)
        if browse:
            click.launch(served)
        return
    if link_only:
        raise ConflictError("the page is not served", hint="start it: hal web, or hal up --with web")
    words = ["--home", str(home.root)] if screen.address.home is not None else []
    words += ["--listen", listen] if listen else []
    words += [word for name in hosts for word in ("--host", name)]
    words += ["--open"] if browse else []
    if screen.address.endpoints:
        os.environ["HAL_URL"] = screen.address.named
    os.execv(sys.executable, [sys.executable, "-m", "hal.web", "--show-link", *words])


def sign_in_link(home: Home) -> str:
    """A new sign-in link of the page of that home; '' where none is served."""
    import http.client
    import socket

    import msgspec

    directory = home.known_socket_dir()
    if directory is None or not (directory / SOCKET).exists():
        return ""
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(str(directory / SOCKET))
        connection.request("POST", LINK_PATH)
        answer = connection.getresponse()
        body = answer.read(MAX_LINK_BYTES)
        return str(msgspec.json.decode(body)["url"]) if answer.status == http.HTTPStatus.OK else ""
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return ""
    finally:
        connection.close()
