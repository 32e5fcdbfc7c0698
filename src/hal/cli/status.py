"""`hal status`: what runs, what waits, what is missing and what to do about it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.sync import Client
    from hal.client.views import ControllerInfo, HealthInfo, NodeInfo
    from hal.runtime.home import Home

_EXIT_CODES = {"running": exit_codes.OK, "following": exit_codes.OK, "degraded": exit_codes.OVERLOADED}
PATIENCE_S = 3.0
"""How long a controller that does not answer, or a leader that there is not, is waited for."""
CONTROLLER_COLUMNS = ("CONTROLLER", "STATE", "SINCE", "VERSION", "ADDRESS")
NODE_COLUMNS = ("NODE", "STATE", "CPU", "MEMORY", "RUNNING", "REASON")


class Problem(msgspec.Struct, frozen=True):
    """Something that is missing, and what to do."""

    what: str
    do: str = ""


class Report(msgspec.Struct, kw_only=True):
    """What was found."""

    where: str
    controller: str = "not running"
    version: str = ""
    pid: int | None = None
    nodes: list[Any] = []
    jobs: dict[str, int] = {}
    lost_after_ms: int = 0
    problems: list[Problem] = []
    store: str = ""
    leader: str = ""
    controllers: list[Any] = []
    rest: str = ""
    fingerprint: str = ""
    """Of the authority of the HAL of this machine."""


@command(
    "status",
    short_help="How HAL is.",
    output=True,
    examples="""
    hal status
    hal status -o json | jq '.problems'
    """,
)
@pass_screen
def status(screen: Screen) -> int:
    """How HAL is: controller, nodes, jobs by state, and what to do about what is missing.

    The exit code is 5 when no controller answers, 7 when it answers but cannot store anything (a full disk).
    """
    from hal.client.sync import Client
    from hal.core.model import UnreachableError
    from hal.runtime.startup import stage

    address = screen.address
    report = Report(where=address.named)
    if address.home:
        from hal.cli.processes import controller

        with contextlib.suppress(UnreachableError):
            address.path()  # whose home is it?

        identity = controller(address.home).identity
        report.pid = identity.pid if identity else None
    try:
        with Client(address, reconnect_s=PATIENCE_S) as client:
            _look(screen, client, report)
    except UnreachableError as error:
        doing = stage(address.home) if address.home else ""
        report.controller = f"starting: {doing}" if doing else "not answering" if report.pid else "not running"
        report.problems.append(Problem(error.message, error.hint))
        report.problems += [] if doing else _left_over(screen)
    screen.show(report, lambda: _render(screen, report))
    return _EXIT_CODES.get(report.controller, exit_codes.UNREACHABLE)


def _fingerprint(home: Home) -> str:
    from hal.cli.up import own_fingerprint

    return own_fingerprint(home)


def _look(screen: Screen, client: Client, report: Report) -> None:
    """What the controller says.

    Raises:
        UnreachableError: it does not answer.
    """
    home = screen.address.home
    health = client.health()
    report.controller = "running" if health.status == "ok" else health.status
    report.version = health.version
    report.store = health.store
    report.leader = health.leader
    report.rest = health.rest
    report.fingerprint = _fingerprint(home) if home else ""
    report.jobs = _jobs_by_state(health)
    report.lost_after_ms = health.lost_after_ms
    report.problems += [Problem(text) for text in health.warnings]
    _look_at_controllers(client, report)
    _look_at_nodes(client, report)


def _look_at_controllers(client: Client, report: Report) -> None:
    """Those that share the database, and what that warns of."""
    from hal.client import calls
    from hal.core.model import HALError

    try:
        found = client.call(calls.controllers())
    except HALError as error:
        report.problems.append(Problem(f"the controllers cannot be listed: {error.message}", error.hint))
        return
    report.controllers = list(found.controllers)
    report.problems += [Problem(text) for text in found.warnings]
    report.problems += [
        Problem(f"controller {one.name} is not heard", "is its machine up? start it there with: hal up")
        for one in found.controllers
        if one.state == "silent"
    ]


def _look_at_nodes(client: Client, report: Report) -> None:
    """As the leader sees them; a follower without one says so.

    Raises:
        UnreachableError: it does not answer any more.
    """
    from hal.core.model import UnreachableError

    try:
        nodes = client.nodes()
    except UnreachableError as error:
        if report.controller != "following":
            raise
        report.problems.append(Problem(error.message, error.hint))
        return
    report.nodes = nodes
    report.problems += _node_problems(nodes)


def _jobs_by_state(health: HealthInfo) -> dict[str, int]:
    return {state: count for state, count in health.jobs.items() if count}


def _node_problems(nodes: list[NodeInfo]) -> list[Problem]:
    from hal.core.model import NodeState

    if not nodes:
        return [Problem("there is no node: no job can start", "start one with: hal up")]
    return [
        Problem(
            f"node {node.name} is {node.state}{f': {node.reason}' if node.reason else ''}",
            "hal up starts it again" if node.state in (NodeState.UNREACHABLE, NodeState.DOWN) else "",
        )
        for node in nodes
        if node.state is not NodeState.UP
    ]


def _left_over(screen: Screen) -> list[Problem]:
    """Without a controller: what else of HAL still runs here."""
    home = screen.address.home
    if home is None:
        return []
    from hal.cli.processes import nodes_with_processes, steps_in_processes
    from hal.core.model import plural

    found = []
    if names := nodes_with_processes(home):
        found.append(Problem(f"keepers of {', '.join(names)} are running", "hal up finds them, hal down stops them"))
    if steps := steps_in_processes(home):
        found.append(Problem(f"{plural(steps, 'step')} running", "hal up takes them over, hal down --kill ends them"))
    return found


def _controller_row(one: ControllerInfo) -> tuple[str, ...]:
    from hal.cli.wording import instant

    return one.name, one.state, instant(one.since_ms), one.version, one.rest.split()[-1] if one.rest else ""


def _render(screen: Screen, report: Report) -> None:
    from hal.cli.wording import used
    from hal.core.model import NodeState, format_duration

    running = report.controller in _EXIT_CODES
    pid = f" (process {report.pid})" if report.pid else ""
    version = f", version {report.version}" if report.version else ""
    jobs = ", ".join(f"{count} {state}" for state, count in report.jobs.items()) or "none waiting or running"
    screen.fields(
        {
            "HAL": report.where,
            "controller": f"{report.controller}{pid}{version}",
            "leader": report.leader,
            "store": report.store,
            "REST": report.rest,
            "authority": report.fingerprint,
            "jobs": jobs if running and report.controller != "following" else "",
        }
    )
    if report.lost_after_ms and any(node.state is NodeState.UNREACHABLE for node in report.nodes):
        after = format_duration(report.lost_after_ms)
        screen.line(
            f"a node that is not heard for {after} has lost what says on_node_lost: requeue; the rest waits for it"
        )
    if len(report.controllers) > 1:
        screen.line()
        screen.table(CONTROLLER_COLUMNS, [_controller_row(one) for one in report.controllers])
    if report.nodes:
        screen.line()
        rows = [
            (
                node.name,
                node.state.value,
                used(node.capacity, node.free, "cpu"),
                used(node.capacity, node.free, "memory"),
                str(node.running),
                node.reason,
            )
            for node in report.nodes
        ]
        screen.table(NODE_COLUMNS, rows)
    if report.problems:
        screen.line()
    for problem in report.problems:
        screen.line(f"! {problem.what}{f' → {problem.do}' if problem.do else ''}")
