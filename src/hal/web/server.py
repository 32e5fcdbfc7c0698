"""The process of the page: its settings, its sockets, its life."""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import webbrowser
from functools import partial
from typing import Final

from msgspec.structs import replace

from hal.client.address_lookup import find_address
from hal.client.addresses.address import ANY_HOSTS, Address
from hal.core.model import HALError
from hal.core.model.config_sections import read_own
from hal.core.model.printable import printable
from hal.core.model.web_config import WEB, WebSection, check_web
from hal.rest.audit import AuditLog
from hal.rest.daemon import interface_of
from hal.rest.limits import Limits
from hal.rest.openapi import About
from hal.rest.routes import Routes
from hal.rest.server.guard import Guard
from hal.rest.server.http_server import HttpServer, Ports
from hal.runtime.config_file import config_text
from hal.runtime.home import find_home
from hal.runtime.interface import Runtime
from hal.runtime.process import EXIT_CONFLICT, run
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.startup import EXIT_BAD_INPUT
from hal.web.assets import load_assets
from hal.web.callers import WebCallers
from hal.web.front import Front, answers_to
from hal.web.live import Live
from hal.web.rows import ROWS, Web, WebCall, link
from hal.web.sessions import Sessions
from hal.web.shared_answers import SharedAnswers
from hal.web.upstream import Services
from hal.wire.address import format_address, parse_address

NAME: Final = "web"
ABOUT: Final = About(
    title="HAL web",
    versions=(1,),
    summary="What the page asks.",
    description="For the page alone; programs use the controller's own interface.",
    server="`hal web`",
    tags=("session", "live", "controller", "collector", "access", "service"),
)
INTERFACE: Final = interface_of(ABOUT, ROWS)
LIMITS: Final = Limits(
    requests_per_s=200, burst=1_000, at_once=300, max_request_bytes=1 << 20, max_user_request_bytes=1 << 20
)


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="hal web", description="Serve the page of a HAL.")
    parser.add_argument("--home")
    parser.add_argument("--listen", help="HOST:PORT; default: web.listen of hal.toml")
    parser.add_argument("--host", action="append", default=[], help="a further name of this server")
    parser.add_argument("--show-link", action="store_true", help="print a sign-in link")
    parser.add_argument("--open", action="store_true", help="open it in a browser, too")
    asked = parser.parse_args(arguments)
    home = find_home(asked.home)
    try:
        section = read_own(config_text(home.config), WEB, str(home.config))
        if asked.listen:
            section = replace(section, listen=asked.listen)
        section = replace(section, hosts=(*section.hosts, *asked.host))
        check_web(section)
        host, port = parse_address(section.listen, "--listen")
        address = find_address(asked.home)
    except HALError as error:
        print(printable(f"hal web: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    work = partial(serve, section=section, where=(host, port), address=address, show=asked.show_link, browse=asked.open)
    return run(NAME, home, work)


class Page:
    """The application put together."""

    def __init__(
        self, runtime: Runtime, section: WebSection, where: tuple[str, int], address: Address, *, secure: bool
    ) -> None:
        """
        Args:
            where: host and port at which it is served.
            address: of the controller.
            secure: it is served over TLS.
        """
        host, port = where
        shown = host if host not in ANY_HOSTS else socket.gethostname()
        scheme = "https" if secure else "http"
        sessions = Sessions(runtime, address)
        services = Services(address, section.collector or os.environ.get("HAL_COLLECTOR", ""))
        sessions.on_end = services.forget
        self.web = Web(
            sessions=sessions,
            services=services,
            answers=SharedAnswers(runtime, services),
            live=Live(runtime),
            cookie=f"hal-web-{port}",
            secure=secure,
            origin=f"{scheme}://{format_address(shown, port)}",
        )
        self.audit = AuditLog(runtime.paths.log_file(f"audit-{runtime.name}"))
        guard = Guard(
            Routes(INTERFACE.rows, call_type=WebCall).serve(self.web, runtime),
            callers=WebCallers(sessions, cookie=self.web.cookie, owner_uid=os.geteuid()),
            limits=LIMITS,
            audit=self.audit,
            runtime=runtime,
            rows=INTERFACE.rows,
        )
        self.front = Front(
            guard,
            assets=load_assets(),
            sessions=sessions,
            cookie=self.web.cookie,
            scheme=scheme,
            answers_to=answers_to(host, (*section.hosts, shown)),
        )


async def serve(
    runtime: RealRuntime, *, section: WebSection, where: tuple[str, int], address: Address, show: bool, browse: bool
) -> int:
    """Serve until asked to stop; returns the exit code.

    Args:
        show: print a sign-in link.
        browse: open it in a browser.
    """
    host, port = where
    try:
        tls = _tls_of(section)
    except OSError as error:
        print(printable(f"hal web: {section.tls_cert}, {section.tls_key}: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT
    page = Page(runtime, section, where, address, secure=tls is not None)
    ports = Ports(tcp=(host, port), tls=tls, how_to_change="choose another one: hal web --listen HOST:PORT")
    server = HttpServer(page.front, runtime, page.audit, ports, at_once=LIMITS.at_once, instance=lambda: "")
    private = runtime.paths.socket_dir() / f"{runtime.name}.sock"
    try:
        await server.start(private)
    except HALError as error:
        print(printable(f"hal web: {error}"), file=sys.stderr)  # noqa: T201
        return EXIT_CONFLICT
    runtime.log.info("ready", url=page.web.origin)
    if show:
        signed = link(page.web.origin, page.web.sessions.new_key())
        print(f"HAL's page: {signed}", flush=True)  # noqa: T201
        if browse:
            await runtime.run_blocking(partial(webbrowser.open, signed))
    watching = runtime.spawn_task(page.web.sessions.watch_tokens(), "tokens")
    await runtime.stopping.wait()
    watching.cancel()
    await server.stop()
    await page.web.sessions.aclose()
    return 0


def _tls_of(section: WebSection) -> ssl.SSLContext | None:
    """
    Raises:
        OSError: the certificate or its key cannot be read.
    """
    if not section.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(section.tls_cert, section.tls_key)
    return context
