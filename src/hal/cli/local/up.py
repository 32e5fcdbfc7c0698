"""`hal up`: start HAL on this machine, or the parts that are not running, and wait until it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen
from hal.cli.local.node_options import Offer, foreground_options, offer_options

if TYPE_CHECKING:
    from hal.cli.local.layout import Layout
    from hal.cli.local.planes import PlaneStatus
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
    hal up --with prices                    # and a plane that hal.toml declares
    hal up --foreground                     # stay, and end it on SIGTERM: for containers and service managers
    """,
)
@click.option(
    "--nodes", type=int, metavar="N", help="Number of nodes on this machine (default: 1); 0: only a controller."
)
@offer_options
@click.option(
    "--name", help="Name of the node (default: the host name); several: NAME1, NAME2, … (default: n1, n2, …)."
)
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
    "--with",
    "planes",
    metavar="NAME,…",
    help="Planes of hal.toml that run beside the controller, from now on; '' for none.",
)
@click.option(
    "--restart/--no-restart",
    default=None,
    help="Start again what ends, after a pause that grows (default); or leave that to others.",
)
@foreground_options
@click.option(
    "--accept-policy",
    is_flag=True,
    help="Apply a changed hal.toml even if it removes entries of the policy that were set by commands.",
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
    planes: str | None,
    restart: bool | None,
    foreground: bool,
    on_stop: str,
    accept_policy: bool,
    new_store: bool,
) -> None:
    """Whatever is not running is started; if everything runs, nothing changes.

    Without options, HAL starts with the same nodes as the last time, and continues with its jobs.
    """
    from msgspec.structs import replace

    from hal.cli.local.accepted_policy import settle_policy
    from hal.cli.local.foreground import ended_on_signal, stay
    from hal.cli.local.layout import Layout, saved_agent, saved_layout
    from hal.cli.local.planes import declared_planes
    from hal.cli.local.processes import one_at_a_time
    from hal.cli.local.startup import start_missing
    from hal.core.model import ConflictError, SpecError
    from hal.runtime.home import find_home
    from hal.runtime.step_users import check_former_variable
    from hal.wire.address import format_address, parse_address

    if screen.url:
        raise SpecError("--url: HAL can be started only on this machine", hint="leave --url out")
    address = _tcp_address(tcp) if tcp else ""
    agents = format_address(*parse_address(wire, "--wire")) if wire else ""

    if nodes == 0 and (offer.given or name):
        raise SpecError(
            "--nodes 0 starts no node, so options of nodes cannot be given", hint="leave the other options out"
        )
    check_former_variable()
    home = find_home(screen.home)
    home.create()
    home.socket_dir()
    with one_at_a_time(home), ended_on_signal(foreground):
        if saved_agent(home) is not None:
            raise ConflictError(
                f"home {home.root} belongs to a node of a HAL on another machine",
                hint="start that node with `hal agent`; to start a HAL here, use another home: --home DIR",
            )
        saved = saved_layout(home)
        if saved is not None and nodes is None and name is None and not offer.given:
            layout = Layout(nodes=saved.nodes, tcp=address or saved.tcp, wire=agents or saved.wire)
        else:
            count = 1 if nodes is None else nodes
            if count == 1 and saved is not None and saved.nodes:
                name = name or saved.nodes[0].name  # what runs there, and what is known of it, stays with the node
            planned = offer.plan(count, name, home.config)
            layout = Layout(nodes=planned, tcp=address, wire=agents)
        before = saved or layout
        names = before.planes if planes is None else tuple(name.strip() for name in planes.split(",") if name.strip())
        layout = replace(
            layout,
            planes=declared_planes(home, names),
            restart=foreground or (before.restart if restart is None else restart),
        )
        if layout.planes and not layout.restart:
            raise SpecError("--with: planes are started by what --no-restart leaves out", hint="add --restart")
        if layout.tcp:
            home.token_text()
        started = start_missing(screen, home, layout, saved, new_store=new_store)
        layout.save(home)
        supervise(home, restart=layout.restart and not foreground)
    _print_result(screen, home, layout, started, foreground=foreground)
    settle_policy(screen, home, accept=accept_policy, asks=not foreground)
    if foreground:
        stay(screen, home, on_stop)


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


def supervise(home: Home, *, restart: bool) -> None:
    """Let a supervisor run in the background, or (not `restart`) none."""
    from hal.cli.local import processes

    if not restart:
        processes.stop_supervisor(home)
    elif not processes.supervisor(home).identity:
        processes.start_supervisor(home)


def _planes(screen: Screen, home: Home, layout: Layout, *, foreground: bool) -> list[PlaneStatus]:
    """How the planes are once they work; in the foreground they are started afterwards."""
    from hal.cli.kit.progress import Progress
    from hal.cli.local.planes import plane_states, wait_for_planes

    if not layout.planes or foreground:
        return plane_states(home, layout.planes)
    with Progress(screen) as progress:
        return wait_for_planes(home, layout.planes, progress.show)


def _print_result(screen: Screen, home: Home, layout: Layout, started: Sequence[str], *, foreground: bool) -> None:
    from hal.cli.kit.formats import amounts
    from hal.cli.kit.screen import as_plain
    from hal.cli.local.processes import OLD_SETTINGS, has_old_settings, option_of, read_again
    from hal.cli.local.startup import FOLLOWING
    from hal.core.model import plural

    planes = _planes(screen, home, layout, foreground=foreground)
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
        screen.emit({**found, "nodes": as_plain(layout.nodes), "planes": as_plain(planes)})
        return
    if screen.quiet:
        return
    there = option_of(home)
    screen.line(f"HAL is up{'' if started else ' already'}: {plural(len(layout.nodes), 'node')}, home {home.root}")
    for plan in layout.nodes:
        has = amounts({"cpu": plan.cpu_milli, "memory": plan.memory_bytes, **plan.resources})
        screen.line(f"  {plan.name}: {has}")
    for plane in planes:
        if plane.works:
            screen.line(f"  plane {plane.name}: running (process {plane.pid})")
        elif not foreground:
            why = f": {plane.reason}" if plane.reason else ""
            output = home.output_file(f"plane-{plane.name}")
            screen.note(f"warning: plane {plane.name} does not work{why}; see {output}")
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
    if has_old_settings(home):
        screen.note(f"warning: {OLD_SETTINGS}")
        screen.note(f"hint: {read_again(home)}")
    elif not foreground:
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
