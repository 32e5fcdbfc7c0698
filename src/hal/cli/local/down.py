"""`hal down`: stop HAL on this machine; what becomes of running steps is asked, or given as an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.progress import Progress
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.runtime.home import Home


@command(
    "down",
    output=True,
    examples="""
    hal down           # ask what to do if steps are running
    hal down --leave   # let them continue; `hal up` finds them again
    hal down --kill    # end them first
    """,
)
@click.option("--leave", is_flag=True, help="Stop only the controller; running steps continue.")
@click.option("--kill", is_flag=True, help="End running steps (their jobs are cancelled), then stop everything.")
@pass_screen
def down(screen: Screen, leave: bool, kill: bool) -> int:
    """Pending jobs are kept, and start after the next `hal up`."""
    from hal.cli.local import processes
    from hal.core.model import SpecError
    from hal.runtime.home import find_home

    if leave and kill:
        raise click.UsageError("--leave and --kill cannot be combined")
    if screen.url:
        raise SpecError("--url: HAL can be stopped only on its own machine", hint="leave --url out")
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
        stopped, nodes = processes.stop_all(home, leave=leave, kill_steps=kill, tell=progress.show)
    return _report(screen, home, stopped, nodes, steps if leave else 0)


def _running_steps(screen: Screen, home: Home) -> int:
    """How many steps run here, according to the controller and to the processes themselves."""
    from hal.cli.local.processes import steps_in_processes
    from hal.client.addresses.address import Address
    from hal.client.sync_client import Client
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
            f"{plural(steps, 'step')} running, so nothing was stopped",
            hint="hal down --leave lets them continue, hal down --kill ends them",
        )
    screen.err.write(f"{plural(steps, 'step')} running: [l]eave them running, [k]ill them, or stop [n]othing? [l/k/N] ")
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
    rest = f"; {plural(left, 'step')} left running (hal up finds them again)" if left else ""
    # Without a controller, nodes were all that was left.
    parts = ["the controller"] * stopped + [plural(len(nodes), "node")] * bool(nodes)
    screen.line(f"stopped {' and '.join(parts)}{rest}")
    return exit_codes.OK
