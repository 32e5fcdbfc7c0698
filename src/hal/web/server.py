"""The process of the page: its settings, its sockets, its life."""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from hal.client.addresses.address import Address, find_address
from hal.core.model import HALError, SpecError
from hal.core.model.printable import printable
from hal.rest.audit import AuditLog
from hal.rest.daemon import interface_of
from hal.rest.limits import Limits
from hal.rest.openapi import About
from hal.rest.routes import Routes
from hal.rest.server.guard import Guard
from hal.rest.server.http_server import HttpServer, Ports
from hal.runtime.home import find_home
from hal.runtime.process import run
from hal.runtime.real_runtime import RealRuntime
from hal.wire.address import format_address, parse_address
from hal.web.assets import load_assets
from hal.web.callers import WebCallers
from hal.web.front import LOCAL_NAMES, Front, answers_to
from hal.web.live import Live
from hal.web.rows import ROWS, Web, WebCall, link
from hal.web.sessions import Sessions
from hal.web.shared_answers import SharedAnswers
from hal.web.upstream import Services

NAME: Final = "web"
DEFAULT_LISTEN: Final = "127.0.0.1:4280"
ABOUT: Final = About(
    title="HAL web",
    versions=(1,),
    summary="What the page asks.",
    description="For the page alone; programs use the controller's own interface.",
    server="`hal web`",
    tags=("session", "live", "controller", "collector", "access", "service"),
)
INTERFACE: Final = interface_of(ABOUT, ROWS)
LIMITS: Final = Limits(requests_per_s=200, burst=1_000, at_once=300, max_request_bytes=1 << 20, max_user_request_bytes=1 << 20)


class Settings(Struct, frozen=True, kw_only=True):
    """How the page is served."""

    listen: str = DEFAULT_LISTEN
    hosts: tuple[str, ...] = ()
    """Names of this server beside its address."""
    tls_cert: str = ""
    tls_key: str = ""
    plain: bool = False
    """Serve other machines without TLS: a proxy before it has it."""
    collector: str = ""
    show_link: bool = False
    """Print a sign-in link when it serves."""


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="hal web", description="Serve the page of a HAL.")
    parser.add_argument("--home")
    parser.add_argument("--url")
    parser.add_argument("--listen", default=DEFAULT_LISTEN)
    parser.add_argument("--host", action="append", default=[])
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--collector", default=os.environ.get("HAL_COLLECTOR", ""))
    parser.add_argument("--show-link", action="store_true")
    asked = parser.parse_args(arguments)
    settings = Settings(
        listen=asked.listen,
        hosts=tuple(asked.host),
        tls_cert=asked.tls_cert,
        tls_key=asked.tls_key,
        plain=asked.plain,
        collector=asked.collector,
        show_link=asked.show_link,
    )
    try:
        address = find_address(asked.home, asked.url)
        host, port = parse_address(settings.listen)
        check_settings(settings, host)
    except HALError as error:
        print(printable(f"hal web: {error}"), file=sys.stderr)  # noqa: T201
        return 2
    return run(NAME, find_home(asked.home), partial(serve, settings=settings, host=host, port=port, address=address))


def check_settings(settings: Settings, host: str) -> None:
    """
    Raises:
        SpecError: tokens and cookies would be readable on the network, or half a certificate is named.
    """
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SpecError("--tls-cert and --tls-key belong together")
    if host not in LOCAL_NAMES and not settings.tls_cert and not settings.plain:
        raise SpecError(
            f"--listen {settings.listen}: tokens would go over the network without TLS",
            hint="name a certificate with --tls-cert and --tls-key; or --plain behind a proxy that has TLS",
        )


async def serve(runtime: RealRuntime, *, settings: Settings, host: str, port: int, address: Address) -> int:
    """Serve until asked to stop.

    Raises:
        ConflictError: the port is taken.
    """
    tls = None
    if settings.tls_cert:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        tls.load_cert_chain(settings.tls_cert, settings.tls_key)
    shown = host if host not in ("0.0.0.0", "::") else socket.gethostname()
    origin = f"{'https' if tls else 'http'}://{format_address(shown, port)}"
    sessions = Sessions(runtime, address)
    services = Services(address, settings.collector)
    cookie = f"hal-web-{port}"
    web = Web(sessions, services, SharedAnswers(runtime, services), Live(runtime), cookie, tls is not None, origin)
    audit = AuditLog(runtime.paths.log_file(f"audit-{runtime.name}"))
    callers = WebCallers(sessions, cookie=cookie, owner_uid=os.geteuid())
    guard = Guard(
        Routes(INTERFACE.rows, call_type=WebCall).serve(web, runtime),
        callers=callers,
        limits=LIMITS,
        audit=audit,
        runtime=runtime,
        rows=INTERFACE.rows,
    )
    hosts = (*settings.hosts, shown)
    front = Front(
        guard,
        assets=load_assets(),
        sessions=sessions,
        cookie=cookie,
        scheme="https" if tls else "http",
        answers_to=answers_to(host, hosts),
    )
    ports = Ports(tcp=(host, port), tls=tls, how_to_change="choose another one: hal web --listen HOST:PORT")
    server = HttpServer(front, runtime, audit, ports, at_once=LIMITS.at_once, instance=lambda: "")
    private = runtime.paths.socket_dir() / f"{runtime.name}.sock"
    try:
        await server.start(private)
    except HALError as error:
        print(printable(f"hal web: {error}"), file=sys.stderr)  # noqa: T201
        return 6
    runtime.log.info("ready", url=origin)
    if settings.show_link:
        print(f"HAL's page: {link(origin, sessions.new_key())}", flush=True)  # noqa: T201
    watching = runtime.spawn_task(sessions.watch_tokens(), "tokens")
    await runtime.stopping.wait()
    watching.cancel()
    await server.stop()
    await sessions.aclose()
    return 0


def private_socket(home: Path) -> Path:
    """Where the owner asks a running page for a sign-in link."""
    return home / f"{NAME}.sock"
