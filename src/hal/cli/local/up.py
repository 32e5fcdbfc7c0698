"""`hal up`: start HAL on this machine, or the parts that are not running, and wait until it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen
from hal.cli.local.node_options import Offer, offer_options

if TYPE_CHECKING:
    from hal.cli.local.layout import Layout
    from hal.client.rest.views import HealthInfo
    from hal.runtime.home import Home

DEFAULT_HOST = "127.0.0.1"


@command(
    "up",
    output=True,
    examples="""
    hal up                                  # one node with the whole machine
    hal up --nodes 3                        # three nodes that share the machine
    hal up --cpus 8 --memory 16GiB --label disk=ssd
    hal up --tcp 4250                       # REST also at http://127.0.0.1:4250
    hal up --wire 0.0.0.0                   # let other machines join (see hal token)
    hal up --home ~/hal-test                # a second HAL beside the first
    """,
)
@click.option(
    "--nodes", type=int, metavar="N", help="Number of nodes on this machine (default: 1); 0: only a controller."
)
@offer_options
@click.option("--name", help="Name of the node; several nodes are NAME1, NAME2, … (default: n).")
@click.option(
    "--tcp",
    metavar="[HOST:]PORT",
    help="Serve REST on this address, too, with the token in HAL_HOME/token (default: no port).",
)
@click.option(
    "--wire",
    metavar="HOST[:PORT]",
    help="Accept nodes of other machines on this address (default: none; default port: 7422).",
)
@click.option(
    "--new-store",
    is_flag=True,
    help="Accept an empty or older store in place of the known one; jobs missing in it are lost.",
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
    """Whatever is not running is started; if everything runs, nothing changes.

    Without options, HAL starts with the same nodes as the last time, and continues with its jobs.
    """
    from hal.cli.local.layout import Layout, saved_agent, saved_layout
    from hal.cli.local.processes import one_at_a_time
    from hal.cli.local.startup import start_missing
    from hal.core.model import ConflictError, SpecError
    from hal.runtime.home import find_home
    from hal.wire.address import format_address, parse_address

    if screen.url:
        raise SpecError("--url: HAL can be started only on this machine", hint="leave --url out")
    address = _tcp_address(tcp) if tcp else ""
    agents = format_address(*parse_address(wire, "--wire")) if wire else ""

    if nodes == 0 and (offer.given or name):
        raise SpecError(
            "--nodes 0 starts no node, so options of nodes cannot be given", hint="leave the other options out"
        )
    home = find_home(screen.home)
    home.create()
    home.socket_dir()
    with one_at_a_time(home):
        if saved_agent(home) is not None:
            raise ConflictError(
                f"home {home.root} belongs to a node of a HAL on another machine",
                hint="start that node with `hal agent`; to start a HAL here, use another home: --home DIR",
            )
        saved = saved_layout(home)
        if saved is not None and nodes is None and name is None and not offer.given:
            layout = Layout(nodes=saved.nodes, tcp=address or saved.tcp, wire=agents or saved.wire)
        else:
            planned = offer.plan(1 if nodes is None else nodes, name)
            layout = Layout(nodes=planned, tcp=address, wire=agents)
        if layout.tcp:
            home.token_text()
        started = start_missing(screen, home, layout, saved, new_store=new_store)
        layout.save(home)
    _print_result(screen, home, layout, started)


def _tcp_address(text: str) -> str:
    """`HOST:PORT`, loopback when no host is given.

    Raises:
        SpecError: neither.
    """
    from hal.core.model import SpecError

    host, colon, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536 or (colon and not host):
        raise SpecError(f"--tcp: '{text}' is not [HOST:]PORT", hint="write, for example, --tcp 4250")
    return f"{host or DEFAULT_HOST}:{int(port)}"


def _print_result(screen: Screen, home: Home, layout: Layout, started: Sequence[str]) -> None:
    from hal.cli.kit.formats import amounts
    from hal.cli.kit.screen import as_plain
    from hal.cli.local.startup import FOLLOWING
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
        screen.line(f"  REST: {url}, token in {home.token}")
        if url.startswith("https:") and fingerprint:
            screen.line(f"  from other machines: hal login {url} --fingerprint {fingerprint}")
    if wire:
        screen.line(f"  nodes of other machines: {wire}; to add one: hal token create{there}")
    if health.status == FOLLOWING:
        leader = health.leader or "another"
        screen.line(f"  standby: controller {leader} leads; the nodes here are used once this one leads")
    for warning in health.warnings:
        if warning.startswith("steps run as "):
            screen.note(f"warning: {warning}")
    screen.note(f"try: hal run{there} -- hostname    hal status{there}    hal down{there}")


def _health(home: Home) -> HealthInfo:
    """The controller's health; an empty one if it has gone again."""
    from hal.client.addresses.address import Address
    from hal.client.rest.views import HealthInfo
    from hal.client.sync_client import Client
    from hal.core.model import HALError

    with Client(Address(home=home), reconnect_s=0.0) as client:
        try:
            return client.health()
        except HALError:
            return HealthInfo(status="")


def own_fingerprint(home: Home) -> str:
    """The fingerprint of the authority in that home, which is that of its controller; '' if there is none."""
    from hal.client.addresses.trust import fingerprint_of

    try:
        return fingerprint_of((home.authority / "authority.pem").read_text())
    except OSError:
        return ""
