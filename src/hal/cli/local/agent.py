"""`hal agent`: run this machine as a node of a HAL on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen
from hal.cli.local.node_options import Offer, foreground_options, offer_options

if TYPE_CHECKING:
    from hal.cli.local.layout import AgentLayout
    from hal.runtime.home import Home

CONNECTED_S: Final = 60.0
"""How long the controller may take to accept the node."""


@command(
    "agent",
    output=True,
    examples="""
    hal agent --join TOKEN --controller head.example.org   # TOKEN: from `hal token create` there
    hal agent --join - --controller head:7422,head2:7422   # read the token from standard input
    hal agent                                              # start it again with the same settings
    hal agent --foreground                                 # stay: for containers and service managers
    hal down                                               # stop it
    """,
)
@click.option("--join", "token", metavar="TOKEN", help="Join token; - reads it from standard input.")
@click.option("--controller", metavar="HOST[:PORT],…", help="Addresses of the controllers (default port: 7422).")
@click.option("--name", help="Name of the node (default: the host name).")
@offer_options
@click.option(
    "--restart/--no-restart",
    default=None,
    help="Start the node again when it ends, after a pause that grows (default); or leave that to others.",
)
@foreground_options
@pass_screen
def agent(
    screen: Screen,
    token: str | None,
    controller: str | None,
    name: str | None,
    offer: Offer,
    restart: bool | None,
    foreground: bool,
    on_stop: str,
) -> None:
    """The first time, it joins with a token. Later, `hal agent` alone starts it again.

    No port is opened on this machine: the agent connects to the controller.
    """
    from hal.cli.local.foreground import ended_on_signal, stay
    from hal.cli.local.join_exchange import join
    from hal.cli.local.layout import AgentLayout, host_node_name, saved_agent, saved_layout
    from hal.cli.local.processes import agent as agent_process
    from hal.cli.local.processes import keeper, one_at_a_time
    from hal.cli.local.up import supervise
    from hal.core.model import ConflictError, SpecError
    from hal.runtime.authority import NodeIdentity
    from hal.runtime.home import find_home
    from hal.runtime.step_users import check_former_variable
    from hal.wire.address import parse_controllers
    from hal.wire.join_token import read_join_token

    if screen.url:
        raise SpecError("--url: an agent can be started only on this machine", hint="leave --url out")
    joining = None if token is None else read_join_token(screen.stdin.readline() if token == "-" else token)
    addresses = () if controller is None else parse_controllers(controller)

    check_former_variable()
    home = find_home(screen.home)
    home.create()
    with one_at_a_time(home), ended_on_signal(foreground):
        if saved_layout(home) is not None:
            raise ConflictError(
                f"home {home.root} belongs to a HAL that `hal up` started here",
                hint="to run a node of another HAL, too, use another home: --home DIR",
            )
        saved = saved_agent(home)
        wanted = addresses or (saved.controllers if saved else ())
        called = name or (saved.node.name if saved else host_node_name())
        if not wanted:
            raise SpecError("--controller is missing", hint="name the machine on which `hal up` runs")
        if saved is not None and not offer.given and called == saved.node.name:
            plan = saved.node
        else:
            (plan,) = offer.plan(1, called, home.config)
        again = saved.restart if saved is not None and restart is None else restart is not False
        layout = AgentLayout(node=plan, controllers=wanted, restart=foreground or again)
        runs = bool(keeper(home, plan.name).identity or agent_process(home, plan.name).identity)
        if runs and (saved is None or (saved.node, saved.controllers) != (layout.node, layout.controllers)):
            raise ConflictError(f"node {plan.name} is running with other options", hint="stop it first: hal down")
        if runs and joining is not None:
            raise ConflictError(
                f"node {plan.name} has joined already and is running", hint="to join again, stop it first: hal down"
            )
        if saved is not None and saved.node.name != plan.name and keeper(home, saved.node.name).identity:
            raise ConflictError(f"node {saved.node.name} is running from this home", hint="stop it first: hal down")
        if joining is not None:
            join(home, plan.name, joining, wanted)
        elif not NodeIdentity(home.node(plan.name).identity).joined:
            raise SpecError(
                f"node {plan.name} has not joined yet, and --join is missing",
                hint="create a token on the controller's machine: hal token create",
            )
        layout.save(home)
        connected = _start(screen, home, layout)
        supervise(home, restart=layout.restart and not foreground)
    _print_result(screen, home, layout, connected)
    if foreground:
        stay(screen, home, on_stop)


def _start(screen: Screen, home: Home, layout: AgentLayout) -> str:
    """Start the keeper unless it runs, wait for the controller to accept the node, and return the controller's address.

    Raises:
        UnreachableError: the node was not accepted; what was started here is stopped again.
    """
    from hal.cli.kit.progress import Progress
    from hal.cli.local import processes
    from hal.core.model import UnreachableError
    from hal.runtime.link_note import LinkNote, read_link_note, remove_link_note

    node = layout.node
    home.socket_dir()
    started: list[processes.Process] = []
    if not processes.keeper(home, node.name).identity and not processes.agent(home, node.name).identity:
        remove_link_note(home, node.name)
        started.append(processes.start_keeper(home, node, layout.controllers))
    note: LinkNote | None = None

    def connected() -> bool:
        nonlocal note
        note = read_link_note(home, node.name)
        return note is not None and note.connected

    try:
        with Progress(screen) as progress:

            def report() -> None:
                why = "" if note is None else f" ({note.text})"
                progress.show(f"waiting for the controller{why}")

            try:
                ended = processes.wait_until(connected, started, CONNECTED_S, report)
            except TimeoutError:
                why = note.text if note else "its agent did not start"
                raise UnreachableError(
                    f"the controller did not accept node {node.name} within {CONNECTED_S:.0f} s: {why}",
                    hint=f"see the agent's log: {processes.agent(home, node.name).log_path}",
                ) from None
            if ended is not None:
                raise UnreachableError(
                    f"{ended.name} did not start: {' '.join(ended.tail()[-1:])}", hint=f"see its log: {ended.log_path}"
                )
    except BaseException:
        for process in started:
            process.undo()
        if started:
            processes.stop_nodes(home, kill_steps=False)
            processes.remove_sockets(home)
        raise
    return "" if note is None else note.text


def _print_result(screen: Screen, home: Home, layout: AgentLayout, connected: str) -> None:
    from hal.cli.kit.formats import amounts

    node = layout.node
    if screen.plain:
        screen.emit(
            {
                "home": str(home.root),
                "node": node.name,
                "controllers": list(layout.controllers),
                "connected": connected.removeprefix("tcp:"),
            }
        )
        return
    if not screen.quiet:
        has = amounts({"cpu": node.cpu_milli, "memory": node.memory_bytes, **node.resources})
        screen.line(f"node {node.name} ({has}) is connected to the controller at {connected.removeprefix('tcp:')}")
