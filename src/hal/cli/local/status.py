"""`hal status`: show what runs, what is missing, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import ControllerInfo, HealthInfo, NodeInfo
    from hal.client.sync_client import Client
    from hal.runtime.home import Home

_EXIT_CODES = {"running": exit_codes.OK, "following": exit_codes.OK, "degraded": exit_codes.OVERLOADED}
PATIENCE_S = 3.0
"""How long to wait for a controller that does not answer, or for a leader."""
CONTROLLER_COLUMNS = ("CONTROLLER", "STATE", "SINCE", "VERSION", "ADDRESS")
PLANE_COLUMNS = ("PLANE", "STATE", "PROCESS", "RESTARTS", "REASON")
NODE_COLUMNS = ("NODE", "STATE", "CPU", "MEMORY", "RUNNING", "REASON")


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong, and what to do about it."""

    what: str
    do: str = ""


class Report(msgspec.Struct, kw_only=True):
    """The status, as it is printed."""

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
    planes: list[Any] = []
    """Those that `hal up --with` named on this machine."""
    supervisor: int | None = None
    """Process that starts again what ends here."""
    rest: str = ""
    fingerprint: str = ""
    """Of the authority of this HAL; empty unless it is on this machine."""


@command(
    "status",
    output=True,
    examples="""
    hal status
    hal status -o json | jq '.problems'
    """,
)
@pass_screen
def status(screen: Screen) -> int:
    """Shows the controller, the nodes, the jobs by state, and what to do about problems.

    The exit code is 5 if no controller answers, 7 if it answers but cannot store anything (such as on a full disk).
    """
    from hal.client.addresses.address import StartingError
    from hal.client.sync_client import Client
    from hal.core.model import UnreachableError
    from hal.runtime.startup import read_stage

    address = screen.address
    joined = _joined_node(address.home) if address.home else None
    if joined is not None:
        screen.show(joined, lambda: _render_joined(screen, joined))
        return exit_codes.OK if joined.connected else exit_codes.UNREACHABLE
    report = Report(where=address.named)
    if address.home:
        from hal.cli.local.processes import controller

        with contextlib.suppress(UnreachableError):
            address.path()  # raises if the home is not ours

        identity = controller(address.home).identity
        report.pid = identity.pid if identity else None
    try:
        with Client(address, reconnect_s=PATIENCE_S) as client:
            _look(screen, client, report)
    except UnreachableError as error:
        doing = read_stage(address.home) if address.home else ""
        restarting = isinstance(error, StartingError) and not doing
        report.controller = (
            f"starting: {doing}"
            if doing
            else "restarting"
            if restarting
            else "not answering"
            if report.pid
            else "not running"
        )
        report.problems.append(Problem(error.message, "" if restarting else error.hint))
        report.problems += [] if doing or restarting else _left_over(screen)
    if address.home:
        _look_at_supervision(address.home, report)
    elif report.controller == "running":
        _look_at_collector(screen, report)
    screen.show(report, lambda: _render(screen, report))
    return _EXIT_CODES.get(report.controller, exit_codes.UNREACHABLE)


class JoinedNode(msgspec.Struct, kw_only=True):
    """The status of a home that is a node of a HAL on another machine."""

    home: str
    node: str
    controllers: tuple[str, ...]
    """`HOST:PORT` of each that its agent dials."""
    connected: bool = False
    link: str = ""
    """Which controller it is connected to, or why to none."""
    since_ms: int | None = None
    """Since when it is so."""
    keeper: bool = False
    agent: bool = False
    steps: int = 0
    problems: list[Problem] = []


def _joined_node(home: Home) -> JoinedNode | None:
    """What runs in the home of a joined node; None for a home with a controller of its own."""
    from hal.cli.local import processes
    from hal.cli.local.layout import saved_agent
    from hal.runtime.link_note import link_note_ms, read_link_note

    try:
        saved = saved_agent(home)
    except OSError:  # a home of somebody else's
        return None
    if saved is None:
        return None
    name = saved.node.name
    note = read_link_note(home, name)
    found = JoinedNode(
        home=str(home.root),
        node=name,
        controllers=saved.controllers,
        connected=note is not None and note.connected,
        link=note.text if note is not None else "",
        since_ms=link_note_ms(home, name) if note is not None else None,
        keeper=processes.keeper(home, name).identity is not None,
        agent=processes.agent(home, name).identity is not None,
        steps=processes.steps_in_processes(home),
    )
    if not found.agent:
        found.problems.append(Problem(f"the agent of node {name} does not run", "start it: hal agent"))
    elif note is not None and note.refused:
        found.problems.append(Problem(f"the controller refuses this node: {note.text}"))
    elif not found.connected:
        why = f": {note.text}" if note is not None and note.text else ""
        found.problems.append(
            Problem(f"no controller is reached{why}", f"look at {saved.controllers[0].rpartition(':')[0]}: hal status")
        )
    return found


def _render_joined(screen: Screen, found: JoinedNode) -> None:
    from hal.cli.kit.formats import instant
    from hal.core.model import plural

    of = found.controllers[0] if found.controllers else "another machine"
    since = f" since {instant(found.since_ms)}" if found.since_ms else ""
    link = f"connected{since}" if found.connected else "not connected"
    screen.line(f"this is node {found.node} of {of}, {link}")
    screen.fields(
        {
            "home": found.home,
            "controllers": ", ".join(found.controllers),
            "keeper": "running" if found.keeper else "not running",
            "agent": "running" if found.agent else "not running",
            "steps": plural(found.steps, "step") if found.steps else "none",
        }
    )
    screen.line("jobs and other nodes: hal status on that machine, or hal login https://HOST:PORT")
    for problem in found.problems:
        screen.line(f"! {problem.what}{f' → {problem.do}' if problem.do else ''}")


def _fingerprint(home: Home) -> str:
    from hal.cli.local.up import own_fingerprint

    return own_fingerprint(home)


def _look(screen: Screen, client: Client, report: Report) -> None:
    """Fill the report with what the controller reports.

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
    _look_at_nodes(client, report, _own_nodes(home))


def _look_at_supervision(home: Home, report: Report) -> None:
    """Add the planes of this machine, and what keeps ending."""
    from hal.cli.local.layout import saved_agent, saved_layout
    from hal.cli.local.planes import plane_states
    from hal.cli.local.processes import OLD_SETTINGS, has_old_settings, nodes_with_processes, read_again, supervisor
    from hal.cli.local.supervision import read_note
    from hal.core.model import HALError

    identity = supervisor(home).identity
    report.supervisor = identity.pid if identity else None
    try:
        layout = saved_layout(home)
        wanted = layout or saved_agent(home)
        if layout is not None and report.supervisor:
            report.planes = list(plane_states(home, layout.planes))
    except HALError as error:
        report.problems.append(Problem(error.message, error.hint))
        return
    if report.pid and has_old_settings(home):
        report.problems.append(Problem(OLD_SETTINGS, read_again(home)))
    runs = bool(report.pid or nodes_with_processes(home))
    if wanted is not None and wanted.restart and runs and not report.supervisor:
        report.problems.append(Problem("what ends here is not started again", "start the supervisor: hal up"))
    for name, tried in sorted(read_note(home).processes.items()):
        if tried.given_up:
            report.problems.append(Problem(f"{name} is not started again: {tried.ended}", "mend it, then: hal up"))
        elif tried.next_s:
            report.problems.append(Problem(f"{name} ended and is tried again: {tried.ended}"))
    report.problems += [
        Problem(f"plane {one.name} is {one.state}: {one.reason}", f"see {home.output_file(f'plane-{one.name}')}")
        for one in report.planes
        if one.state == "unhealthy"
    ]
    report.problems += [Problem(f"{one.name}: {each.what}", each.do) for one in report.planes for each in one.warnings]


def _look_at_collector(screen: Screen, report: Report) -> None:
    """Add the collector of a HAL on another machine, if that serves other machines."""
    from hal.cli.kit.collector import NAME, collector_client
    from hal.cli.local.planes import PlaneStatus, read_answer
    from hal.client.rest.calls import Call, get
    from hal.core.model import HALError

    try:
        with collector_client(screen) as client:
            said = read_answer(client.call(Call(get("/v1/health"), lambda answer: answer.body)))
    except HALError:
        return
    report.planes.append(PlaneStatus(name=NAME, state="running", summary=said.summary, warnings=said.warnings))
    report.problems += [Problem(f"{NAME}: {each.what}", each.do) for each in said.warnings]


def _look_at_controllers(client: Client, report: Report) -> None:
    """Add the controllers that share the database, and warnings about them."""
    from hal.client.rest import calls
    from hal.core.model import HALError

    try:
        found = client.call(calls.controllers())
    except HALError as error:
        report.problems.append(Problem(f"controllers cannot be listed: {error.message}", error.hint))
        return
    report.controllers = list(found.controllers)
    report.problems += [Problem(text) for text in found.warnings]
    report.problems += [
        Problem(f"controller {one.name} is silent", "check its machine, and start it there: hal up")
        for one in found.controllers
        if one.state == "silent"
    ]


def _look_at_nodes(client: Client, report: Report, own: Mapping[str, bool] | None) -> None:
    """Add the nodes as the leader sees them; a follower without a leader adds that as a problem.

    Raises:
        UnreachableError: it no longer answers.
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
    report.problems += _node_problems(nodes, own)


def _jobs_by_state(health: HealthInfo) -> dict[str, int]:
    return {state: count for state, count in health.jobs.items() if count}


def _node_problems(nodes: list[NodeInfo], own: Mapping[str, bool] | None) -> list[Problem]:
    """What is wrong with nodes.

    Args:
        own: those of this machine, and whether their agents run; None where that is not known, as over a network.
    """
    from hal.core.model import NodeState

    if not nodes:
        return [Problem("there are no nodes, so no job can start", "start one: hal up")]
    found = []
    for node in nodes:
        if node.state is NodeState.UP:
            continue
        what = f"node {node.name} is {node.state.value}{f': {node.reason}' if node.reason else ''}"
        do = ""
        if node.state in (NodeState.UNREACHABLE, NodeState.STOPPED, NodeState.DOWN):
            if own is not None and own.get(node.name):
                do = "its agent runs here and connects again; if it does not: hal down --leave, then hal up"
            elif own is not None and node.name in own:
                do = "start it again: hal up"
            else:
                do = "start it on its machine: hal agent"
        found.append(Problem(what, do))
    return found


def _own_nodes(home: Home | None) -> dict[str, bool] | None:
    """The nodes that `hal up` starts on this machine, and whether their agents run."""
    from hal.cli.local.layout import saved_layout
    from hal.cli.local.processes import agent
    from hal.core.model import HALError

    if home is None:
        return None
    with contextlib.suppress(HALError):  # reported where supervision is looked at
        layout = saved_layout(home)
        return {plan.name: agent(home, plan.name).identity is not None for plan in layout.nodes} if layout else {}
    return None


def _left_over(screen: Screen) -> list[Problem]:
    """What else of HAL still runs here when no controller does."""
    home = screen.address.home
    if home is None:
        return []
    from hal.cli.local.processes import nodes_with_processes, steps_in_processes
    from hal.core.model import plural

    found = []
    if names := nodes_with_processes(home):
        found.append(
            Problem(f"keepers of nodes {', '.join(names)} are running", "use them again: hal up; stop them: hal down")
        )
    if steps := steps_in_processes(home):
        found.append(Problem(f"{plural(steps, 'step')} running", "use HAL again: hal up; end them: hal down --kill"))
    return found


def _controller_row(one: ControllerInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    return one.name, one.state, instant(one.since_ms), one.version, one.rest.split()[-1] if one.rest else ""


def _render(screen: Screen, report: Report) -> None:
    from hal.cli.kit.formats import used
    from hal.core.model import NodeState, format_duration

    running = report.controller in _EXIT_CODES
    pid = f" (process {report.pid})" if report.pid else ""
    version = f", version {report.version}" if report.version else ""
    jobs = ", ".join(f"{count} {state}" for state, count in report.jobs.items()) or "none pending or running"
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
            f"a node that is unreachable for {after} loses its tasks with on_node_lost: requeue; the others wait for it"
        )
    if len(report.controllers) > 1:
        screen.line()
        screen.table(CONTROLLER_COLUMNS, [_controller_row(one) for one in report.controllers])
    if report.planes:
        screen.line()
        found = [(one.name, one.state, str(one.pid or ""), str(one.restarts), one.reason) for one in report.planes]
        screen.table(PLANE_COLUMNS, found)
        for one in report.planes:
            if one.summary:
                screen.line(f"{one.name}: {one.summary}")
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
