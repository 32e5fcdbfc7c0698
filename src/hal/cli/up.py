"""`hal up`: start HAL on this machine, or what of it is missing; wait until it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.command import command, pass_screen
from hal.cli.node_options import Offer, offer_options
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.cli.layout import Layout
    from hal.client.views import HealthInfo
    from hal.runtime.home import Home

DEFAULT_HOST = "127.0.0.1"


@command(
    "up",
    short_help="Start HAL on this machine.",
    output=True,
    examples="""
    hal up                                  # one node with all of this machine
    hal up --nodes 3                        # three, each with its share
    hal up --cpus 8 --memory 16GiB --label disk=ssd
    hal up --tcp 4250                       # also http://127.0.0.1:4250, token in HAL_HOME/token
    hal up --wire 0.0.0.0                   # agents of other machines join: hal token create
    hal up --home ~/hal-test                # a second HAL beside the first
    """,
)
@click.option(
    "--nodes", type=int, metavar="N", help="How many nodes this machine plays (default: 1); 0: a controller only."
)
@offer_options
@click.option("--name", help="Name of the node; of several: NAME1 … NAMEn (default: n).")
@click.option(
    "--tcp", metavar="[HOST:]PORT", help="Answer REST there too, to whoever has the token (default: no port)."
)
@click.option(
    "--wire",
    metavar="HOST[:PORT]",
    help="Listen there for agents of other machines: 0.0.0.0 (port: 7422; default: none).",
)
@click.option(
    "--new-store",
    is_flag=True,
    help="Go on with whatever store is there, also an empty or older one: what it lacks is lost.",
)
@pass_screen
def up(
    screen: Screen,
    nodes: int | None,
    offer: Offer,
    name: str | None,
    tcp: str | None,
    wire: str | None,
    new_store: bool,
) -> None:
    """Start HAL on this machine, or what of it is missing; harmless when all of it runs.

    Without options a HAL that was up before comes back with the same nodes; its jobs are where they were.
    """
    from hal.cli.layout import Layout, saved_agent, saved_layout
    from hal.cli.processes import one_at_a_time
    from hal.cli.starting import start_missing
    from hal.core.model import ConflictError, SpecError
    from hal.runtime.home import find_home
    from hal.wire.address import host_and_port, written

    if screen.url:
        raise SpecError("--url: HAL is started on this machine only", hint="leave --url out, or log in there")
    address = _tcp_address(tcp) if tcp else ""
    agents = written(*host_and_port(wire, "--wire")) if wire else ""

    if nodes == 0 and (offer.said or name):
        raise SpecError("--nodes: 0 nodes have no name and offer nothing", hint="leave the other options out")
    home = find_home(screen.home)
    home.create()
    home.socket_dir()
    with one_at_a_time(home):
        if saved_agent(home) is not None:
            raise ConflictError(
                f"{home.root} is the home of a node of another machine's HAL",
                hint="`hal agent` starts it; for a HAL of its own name another home: --home DIR",
            )
        saved = saved_layout(home)
        if saved is not None and nodes is None and name is None and not offer.said:
            layout = Layout(nodes=saved.nodes, tcp=address or saved.tcp, wire=agents or saved.wire)
        else:
            planned = offer.plan(1 if nodes is None else nodes, name)
            layout = Layout(nodes=planned, tcp=address, wire=agents)
        if layout.tcp:
            home.token_text()
        started = start_missing(screen, home, layout, saved, new_store=new_store)
        layout.save(home)
    _say(screen, home, layout, started)


def _tcp_address(text: str) -> str:
    """`HOST:PORT`, loopback when no host is given.

    Raises:
        SpecError: neither.
    """
    from hal.core.model import SpecError

    host, colon, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536 or (colon and not host):
        raise SpecError(f"--tcp: '{text}' is not [HOST:]PORT", hint="write --tcp 4250")
    return f"{host or DEFAULT_HOST}:{int(port)}"


def _say(screen: Screen, home: Home, layout: Layout, started: Sequence[str]) -> None:
    from hal.cli.screen import as_plain
    from hal.cli.starting import FOLLOWING
    from hal.cli.wording import amounts
    from hal.core.model import plural
    from hal.runtime.home import find_home

    health = _health(home)
    url, wire, fingerprint = health.rest, health.wire, own_fingerprint(home)
    if screen.plain:
        found = {
            "home": str(home.root),
            "socket": str(home.api_socket()),
            "url": url,
            "wire": wire,
            "fingerprint": fingerprint,
            "controller": health.status,
            "started": list(started),
        }
        screen.emit({**found, "nodes": as_plain(layout.nodes)})
        return
    if screen.quiet:
        return
    there = "" if home.root == find_home().root else f" --home {home.root}"
    screen.line(f"HAL is up{'' if started else ' already'}: {plural(len(layout.nodes), 'node')}, home {home.root}")
    for plan in layout.nodes:
        has = amounts({"cpu": plan.cpu_milli, "memory": plan.memory_bytes, **plan.resources})
        screen.line(f"  {plan.name}: {has}")
    if url:
        screen.line(f"  {url}, token in {home.token}")
        if url.startswith("https:") and fingerprint:
            screen.line(f"  from elsewhere: hal login {url} --fingerprint {fingerprint}")
    if wire:
        screen.line(f"  agents of other machines dial {wire}; hal token create{there} tells how they join")
    if health.status == FOLLOWING:
        leader = health.leader or "another"
        screen.line(f"  its controller follows {leader}; nodes of `hal up` are taken in when it leads")
    for warning in health.warnings:
        if warning.startswith("steps run as "):
            screen.note(f"warning: {warning}")
    screen.note(f"try: hal run{there} -- hostname    hal status{there}    hal down{there}")


def _health(home: Home) -> HealthInfo:
    """What the controller says of itself; nothing where it has gone again."""
    from hal.client.address import Address
    from hal.client.sync import Client
    from hal.client.views import HealthInfo
    from hal.core.model import HALError

    with Client(Address(home=home), reconnect_s=0.0) as client:
        try:
            return client.health()
        except HALError:
            return HealthInfo(status="")


def own_fingerprint(home: Home) -> str:
    """Of the authority in that home, which is this machine's controller's; '' where there is none."""
    from hal.client.trust import fingerprint_of

    try:
        return fingerprint_of((home.authority / "authority.pem").read_text())
    except OSError:
        return ""
