"""`hal agent`: make this machine a node of a HAL on another one, and start it again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from hal.cli.command import command, pass_screen
from hal.cli.node_options import Offer, offer_options
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.cli.layout import AgentLayout
    from hal.runtime.home import Home

CONNECTED_S: Final = 60.0
"""How long the agent may take to be taken in by the controller."""


@command(
    "agent",
    short_help="Make this machine a node of a HAL on another one.",
    output=True,
    examples="""
    hal agent --join TOKEN --controller head.example.org       # TOKEN: from `hal token create` there
    hal agent --join - --controller head:7422,head2:7422       # the token on standard input
    hal agent                                                  # start it again, as it was
    hal down                                                   # stop it
    """,
)
@click.option("--join", "token", metavar="TOKEN", help="The join token; - reads it from standard input.")
@click.option("--controller", metavar="HOST[:PORT],…", help="Where controllers listen for agents (port: 7422).")
@click.option("--name", help="Name of the node (default: this machine's).")
@offer_options
@pass_screen
def agent(
    screen: Screen,
    token: str | None,
    controller: str | None,
    name: str | None,
    offer: Offer,
) -> None:
    """Make this machine a node of a HAL whose controller runs on another one; start it again when it was stopped.

    The first time it joins with a token; what it was given then lies in HAL_HOME/nodes/NAME/identity. Agents only dial
    out: no port is opened here.
    """
    from hal.cli.joining import join
    from hal.cli.layout import AgentLayout, saved_agent, saved_layout
    from hal.cli.processes import agent as agent_process
    from hal.cli.processes import keeper, one_at_a_time
    from hal.core.model import ConflictError, SpecError
    from hal.runtime.authority import NodeIdentity
    from hal.runtime.home import find_home
    from hal.wire.address import controllers
    from hal.wire.join_token import read_join_token

    if screen.url:
        raise SpecError("--url: an agent is started on this machine only", hint="leave --url out, or log in there")
    joining = None if token is None else read_join_token(screen.stdin.readline() if token == "-" else token)
    addresses = () if controller is None else controllers(controller)

    home = find_home(screen.home)
    home.create()
    with one_at_a_time(home):
        if saved_layout(home) is not None:
            raise ConflictError(
                f"{home.root} is the home of a HAL of its own (hal up)",
                hint="its nodes need no agent; for a node of another HAL name another home: --home DIR",
            )
        saved = saved_agent(home)
        wanted = addresses or (saved.controllers if saved else ())
        called = name or (saved.node.name if saved else default_name())
        if not wanted:
            raise SpecError("--controller: is missing", hint="name the machine on which `hal up` runs")
        if saved is not None and not offer.said and called == saved.node.name:
            plan = saved.node
        else:
            (plan,) = offer.plan(1, called)
        layout = AgentLayout(node=plan, controllers=wanted)
        runs = bool(keeper(home, plan.name).identity or agent_process(home, plan.name).identity)
        if runs and saved != layout:
            raise ConflictError(f"node {plan.name} runs with other options", hint="stop it first: hal down --home …")
        if runs and joining is not None:
            raise ConflictError(f"node {plan.name} runs already, and has joined", hint="stop it first: hal down")
        if saved is not None and saved.node.name != plan.name and keeper(home, saved.node.name).identity:
            raise ConflictError(f"node {saved.node.name} runs from this home", hint="stop it first: hal down")
        if joining is not None:
            join(home, plan.name, joining, wanted)
        elif not NodeIdentity(home.node(plan.name).identity).known:
            raise SpecError(
                f"--join: node {plan.name} has not joined yet",
                hint="`hal token create` on the controller's machine prints a token",
            )
        layout.save(home)
        connected = _start(screen, home, layout)
    _say(screen, home, layout, connected)


def default_name() -> str:
    """This machine's name, as far as it can be a node's."""
    import socket

    return re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-")[:63] or "node"


def _start(screen: Screen, home: Home, layout: AgentLayout) -> str:
    """Start the keeper unless it runs, and wait until the controller has taken the node in; the controller's address.

    Raises:
        UnreachableError: it did not work; what was started here is stopped again.
    """
    from hal.cli import processes
    from hal.cli.progress import Progress
    from hal.core.model import UnreachableError
    from hal.runtime.link_note import LinkNote, forget_link, read_link

    node = layout.node
    home.socket_dir()
    started: list[processes.Process] = []
    if not processes.keeper(home, node.name).identity and not processes.agent(home, node.name).identity:
        forget_link(home, node.name)
        started.append(processes.start_keeper(home, node, layout.controllers))
    note: LinkNote | None = None

    def connected() -> bool:
        nonlocal note
        note = read_link(home, node.name)
        return note is not None and note.connected

    try:
        with Progress(screen) as progress:

            def tell() -> None:
                why = "" if note is None else f" ({note.text})"
                progress.say(f"waiting for the controller{why}")

            try:
                ended = processes.wait_until(connected, started, CONNECTED_S, tell)
            except TimeoutError:
                why = note.text if note else "its agent did not start"
                raise UnreachableError(
                    f"node {node.name} was not taken in for {CONNECTED_S:.0f} s: {why}",
                    hint=f"its log: {processes.agent(home, node.name).log_path}",
                ) from None
            if ended is not None:
                raise UnreachableError(
                    f"{ended.name} did not start: {' '.join(ended.tail()[-1:])}", hint=f"its log: {ended.log_path}"
                )
    except BaseException:
        for process in started:
            process.undo()
        if started:
            processes.stop_nodes(home, kill_steps=False)
            processes.remove_sockets(home)
        raise
    return "" if note is None else note.text


def _say(screen: Screen, home: Home, layout: AgentLayout, connected: str) -> None:
    from hal.cli.wording import amounts

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
        screen.line(f"node {node.name} ({has}) works for the controller at {connected.removeprefix('tcp:')}")
