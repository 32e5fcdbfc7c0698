"""`hal down`: stop HAL on this machine; what happens to running steps is asked, or said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.progress import Progress
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.runtime.home import Home


@command(
    "down",
    short_help="Stop HAL on this machine.",
    output=True,
    examples="""
    hal down           # asks when steps are running
    hal down --leave   # they go on; `hal up` finds them again
    hal down --kill    # they are ended first
    """,
)
@click.option("--leave", is_flag=True, help="Leave running steps and their keepers; only the controller stops.")
@click.option("--kill", is_flag=True, help="End running steps (their jobs become cancelled), then stop everything.")
@pass_screen
def down(screen: Screen, leave: bool, kill: bool) -> int:
    """Stop HAL on this machine. Jobs that wait are kept, and start after the next `hal up`."""
    from hal.cli import processes
    from hal.core.model import SpecError, plural
    from hal.runtime.home import find_home

    if leave and kill:
        raise click.UsageError("--leave and --kill exclude each other")
    if screen.url:
        raise SpecError("--url: HAL is stopped on its own machine only", hint="leave --url out, or log in there")
    home = find_home(screen.home)
    home.check_ours()
    if not home.run_dir.is_dir():
        return _report(screen, home, False, [], 0)
    with processes.one_at_a_time(home), Progress(screen) as progress:
        steps = _running_steps(screen, home)
        if steps and not leave and not kill:
            progress.clear()
            choice = _ask(screen, steps)
            if choice is None:
                screen.note("nothing was stopped")
                return exit_codes.FAILED
            leave, kill = choice == "leave", choice == "kill"
        nodes: list[str] = []
        if kill:
            progress.say(f"ending {plural(steps, 'running step')} …")
            nodes = processes.stop_nodes(home, kill_steps=True)
        progress.say("stopping the controller …")
        stopped = processes.stop_controller(home)
        if not leave and not kill:
            progress.say("stopping the nodes …")
            nodes = processes.stop_nodes(home, kill_steps=False)
        processes.remove_sockets(home)
    return _report(screen, home, stopped, nodes, steps if leave else 0)


def _running_steps(screen: Screen, home: Home) -> int:
    """How many tasks run here: the controller's word, or what the processes themselves say."""
    from hal.cli.processes import steps_in_processes
    from hal.client.address import Address
    from hal.client.sync import Client
    from hal.core.model import HALError

    try:
        client = Client(Address(home=home), reconnect_s=0.0)
        return max(sum(node.running for node in client.nodes()), steps_in_processes(home))
    except HALError:
        return steps_in_processes(home)


def _ask(screen: Screen, steps: int) -> str | None:
    """'leave', 'kill', or None to stop nothing.

    Raises:
        ConflictError: nobody can be asked.
    """
    from hal.core.model import ConflictError, plural

    if not screen.interactive:
        raise ConflictError(
            f"{plural(steps, 'step')} running; nothing was stopped",
            hint="hal down --leave lets running steps go on, hal down --kill ends them",
        )
    screen.err.write(f"{plural(steps, 'step')} running: [l]eave running, [k]ill, or stop nothing? [l/k/N] ")
    screen.err.flush()
    return {"l": "leave", "leave": "leave", "k": "kill", "kill": "kill"}.get(screen.stdin.readline().strip().lower())


def _report(screen: Screen, home: Home, stopped: bool, nodes: list[str], left: int) -> int:
    from hal.core.model import plural

    if screen.plain:
        screen.emit({"home": str(home.root), "controller_stopped": stopped, "nodes_stopped": nodes, "steps_left": left})
        return exit_codes.OK
    if not stopped and not nodes:
        screen.note(f"HAL at {home.root} was not running")
        return exit_codes.OK
    if screen.quiet:
        return exit_codes.OK
    rest = f"; {plural(left, 'step')} left running, `hal up` finds them again" if left else ""
    stopped_nodes = f" and {plural(len(nodes), 'node')}" if nodes else ""
    screen.line(f"stopped {'the controller' if stopped else 'what was left'}{stopped_nodes}{rest}")
    return exit_codes.OK
