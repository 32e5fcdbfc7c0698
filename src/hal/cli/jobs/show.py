"""`hal show`: show one job in full, or one task with all its attempts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.graph import draw_trees
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen, as_plain

if TYPE_CHECKING:
    from hal.client.rest.views import AttemptInfo, JobInfo, PriorityInfo, TaskInfo
    from hal.core.model import ArrayRange

SHOWN_TASKS = 20
ARRAY_CHARS = 60
TASK_COLUMNS = ("TASK", "STATE", "ATTEMPT", "NODES", "TIME", "EXIT", "MESSAGE")
ATTEMPT_COLUMNS = ("ATTEMPT", "STATE", "NODES", "STARTED", "TIME", "EXIT", "CAUSE", "MESSAGE")


@command(
    "show",
    output=True,
    examples="""
    hal show 42
    hal show 42.7            # task 7, with all its attempts
    hal show 42 --failed     # which tasks failed
    hal show 42.100-199
    hal show 42 -o yaml
    hal show 42 --priority   # its priority, factor by factor
    hal show 42 --spec > again.yaml && hal submit again.yaml
    """,
)
@click.argument("job", metavar="JOB[.TASKS]")
@click.option(
    "--tasks", type=click.IntRange(0), default=SHOWN_TASKS, show_default=True, help="Most tasks of an array to show."
)
@click.option("-s", "--state", multiple=True, metavar="STATE", help="Only tasks in this state; repeatable.")
@click.option("--failed", is_flag=True, help="Only tasks that failed or timed out.")
@click.option("--priority", is_flag=True, help="Show the priority of a pending job, factor by factor.")
@click.option("--spec", is_flag=True, help="Print its spec as YAML, as `hal submit` takes it; with -o json as JSON.")
@click.option("--graph", is_flag=True, hidden=True, help="Same as hal graph.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    hidden=True,
    help="Needs Graphviz.",
)
@pass_screen
def show(
    screen: Screen,
    job: str,
    tasks: int,
    state: Sequence[str],
    failed: bool,
    priority: bool,
    spec: bool,
    graph: bool,
    svg: Path | None,
) -> None:
    """For a task, all its attempts are listed."""
    from hal.cli.jobs.job_filters import FAILED_STATES, filters_from
    from hal.core.model import parse_tasks_ref
    from hal.core.model.index_ranges import text_of

    ref = parse_tasks_ref(job)
    number, position = ref.job, ref.task
    if failed and state:
        raise click.UsageError("--failed and --state cannot be combined")
    states = FAILED_STATES if failed else ",".join(filters_from({"state": state}).get("state", ()))
    if priority:
        parts = screen.client.priority(number)
        screen.show(parts, lambda: _render_priority(screen, parts))
        return
    handle = screen.client.job(number)
    info = handle.info
    if spec:
        _print_spec(screen, info)
        return
    if svg is not None:
        _write_svg(screen, info, svg)
        return
    if graph:
        draw_trees(screen, info)
        return
    if position is not None:
        task = handle.task(position)
        screen.show(task, lambda: _render_task(screen, info, task))
        return
    if info.tasks == 1 and not ref.ranges and not states:
        task = handle.task(0)
        screen.show({**as_plain(info), "task": task}, lambda: _render_single(screen, info, task))
        return
    inside = text_of(ref.ranges)
    named = f"[{inside}]" if ref.by_index else inside
    found = list(handle.tasks(states, tasks=named, limit=tasks + 1)) if tasks else []
    listed = found[:tasks]
    if not listed and (named or states):
        screen.note(f"no task of {job} is {states.replace(',', ' or ')}" if states else f"no task of {job} is shown")
    screen.show({**as_plain(info), "task_list": listed}, lambda: _render_array(screen, info, listed))
    if len(found) > tasks and not screen.plain:
        shown = f"the first {tasks} that match" if named or states else f"{tasks} of {info.tasks} tasks"
        screen.note(f"{shown} are shown (more: --tasks N; one in full: hal show {handle.id}.7)")


def _request(info: JobInfo) -> str:
    from hal.cli.kit.formats import amounts
    from hal.core.model.groups import described
    from hal.core.model.resources import Resources

    groups = (info.spec or {}).get("groups") or ()
    if groups:
        parts = [(one["name"], one.get("nodes", 1), amounts(Resources.parse(one["request"]))) for one in groups]
        return described(parts)
    return amounts(info.request) + (f" on each of {info.nodes} nodes" if info.nodes > 1 else "")


def _print_spec(screen: Screen, info: JobInfo) -> None:
    """As it was submitted, with what was changed since."""
    from hal.core.model.text import yaml_from_plain

    spec = dict(info.spec or {})
    now = {"name": info.name, "queue": info.queue, "account": info.account, "priority": info.priority}
    spec |= {field: value for field, value in now.items() if value or field in spec}
    if info.walltime is not None:
        spec["walltime"] = str(info.walltime)
    screen.show(spec, lambda: print(yaml_from_plain(spec), end="", file=screen.out))


def _render_priority(screen: Screen, parts: PriorityInfo) -> None:
    screen.fields(
        {
            "priority": f"{parts.total:,.1f} points; the queue's order is {parts.discipline}",
            "age": f"{parts.age:,.1f}",
            "fair-share": f"{parts.fairshare:,.1f} (factor {parts.fair_factor:.3f})",
            "qos": f"{parts.qos:,.1f}",
            "queue": f"{parts.queue:,.1f}",
            "nice": f"{parts.priority:,.1f}",
            "size": f"{parts.size:,.1f}",
            "deadline": f"{parts.deadline:,.1f}",
        }
    )


def _write_svg(screen: Screen, info: JobInfo, path: Path) -> None:
    from hal.cli.jobs.dependency_graph import gather, svg_of

    graph = gather(screen.client, info)
    text = svg_of(graph, info.id)
    with written_whole(path) as unfinished:
        unfinished.write_text(text, "utf-8")
    from hal.core.model import plural

    screen.note(f"{path}: {plural(len(graph.boxes), 'job')}{', the nearest' if graph.truncated else ''}")


def _render_single(screen: Screen, info: JobInfo, task: TaskInfo) -> None:
    _render_job(screen, info, used=_usage(task), places=_bound(task) | _places(screen, info, task))
    if task.attempts:
        screen.line()
        _render_attempts(screen, task)


def _render_task(screen: Screen, info: JobInfo, task: TaskInfo) -> None:
    screen.fields(
        {
            "task": f"{task.id} of {info.name or 'job'}",
            "state": task.state.value,
            **_of_array(info, task),
            "nodes": ", ".join(task.nodes),
            **_bound(task),
            "ready": "" if task.ready is None else "yes" if task.ready else "no",
            "message": task.message,
            "used": _usage(task),
            **_places(screen, info, task),
        }
    )
    if task.attempts:
        screen.line()
        _render_attempts(screen, task)


def _render_array(screen: Screen, info: JobInfo, listed: list[TaskInfo]) -> None:
    from hal.cli.jobs.job_cells import ran_ms
    from hal.cli.kit.formats import span

    _render_job(screen, info)
    if not listed:
        return
    now_ms = round(time.time() * 1000)
    screen.line()
    rows = [
        (
            str(task.task),
            task.state.value,
            str(task.attempt or "-"),
            ",".join(task.nodes),
            span(ran_ms(task, now_ms)),
            _exit(task.exit_code, task.signal),
            task.message or ("" if task.cause == "exited" else task.cause),
        )
        for task in listed
    ]
    screen.table(TASK_COLUMNS, rows)


def _of_array(info: JobInfo, task: TaskInfo) -> dict[str, str]:
    """The task's index and item."""
    array = _array(info)
    if array is None:
        return {}
    return {"index": str(array.index(task.task)), "item": array.item(task.task)}


def _array(info: JobInfo) -> ArrayRange | None:
    from hal.core.model import ArrayRange, convert

    raw = (info.spec or {}).get("array")
    return None if raw is None else convert(raw, ArrayRange)


def _array_text(array: ArrayRange | None) -> str:
    """Its indices, as far as they fit into a line, and how many items it has."""
    if array is None:
        return ""
    text = str(array)
    text = text if len(text) <= ARRAY_CHARS else f"{text[:ARRAY_CHARS]}…"
    return f"{text}, one for each of {len(array.items):,} items" if array.items else text


def _bound(task: TaskInfo) -> dict[str, str]:
    """The CPUs and GPUs that a running task has for itself."""
    bound = [f"CPUs {cpus} of {node}" for node, cpus in task.cpus.items()]
    latest = task.attempts[-1] if task.attempts else None
    if latest is not None and latest.gpus and not latest.state.ended and not task.ended:
        bound += [f"GPUs {', '.join(gpus)} of {node}" for node, gpus in zip(latest.nodes, latest.gpus, strict=False)]
    return {"bound to": ", ".join(bound)}


def _places(screen: Screen, info: JobInfo, task: TaskInfo) -> dict[str, str]:
    """Where the outputs of its latest attempt are: on which node, and in which file of the job's own."""
    from hal.client.rest import calls
    from hal.core.model import HALError

    if not task.attempt or not task.nodes:
        return {}
    spec = info.spec or {}
    if not (spec.get("stdout") or spec.get("stderr")):
        return {"output": f"kept by HAL on node {task.nodes[0]} (hal logs {task.id if info.tasks > 1 else info.id})"}
    found = {}
    for name, stream in (("output", "stdout"), ("errors", "stderr")):
        try:
            part = screen.client.call(calls.log(info.id, task=task.task, stream=stream, limit=0))
        except HALError:
            continue  # its node is away: the paths as the job gave them are shown
        kept = f"kept by HAL on node {task.nodes[0]}"
        found[name] = f"{part.path} on node {part.node}" if part.path else kept
    return found


def _render_job(screen: Screen, info: JobInfo, used: str = "", places: Mapping[str, str] = {}) -> None:
    from hal.cli.jobs.job_cells import ran_ms
    from hal.cli.kit.formats import instant, limit, span
    from hal.core.model import plural

    now_ms = round(time.time() * 1000)
    spec = info.spec or {}
    counts = ", ".join(f"{count} {state}" for state, count in info.counts.items() if count)
    command = " ".join(_quoted(word) for word in spec.get("command", ())) or _script(spec)
    screen.fields(
        {
            "job": f"{info.id} {info.name}".rstrip(),
            "state": f"{info.state.value}{f': {info.reason}' if info.reason not in ('', info.state) else ''}",
            "tasks": f"{info.tasks}: {counts}" if info.tasks > 1 else "",
            "extensions": _extensions(info),
            "on resize": f"signal {spec['on_resize']}" if spec.get("on_resize") else "",
            "workers": "share work; the first that exits with 0 says that none is left" if spec.get("workers") else "",
            "array": _array_text(_array(info)),
            "ready": "" if info.ready is None else f"{info.ready} of {plural(info.tasks, 'task')}",
            "service": _service(spec),
            "exit code": "" if info.exit_code is None else str(info.exit_code),
            "command": command,
            "workdir": str(spec.get("workdir", "")),
            "umask": str(spec.get("umask", "")),
            "ships": str(spec.get("ship", "")),
            "collects": ", ".join(spec.get("collect", ()))
            + (" (also of failed attempts)" if "collect_when" in spec else ""),
            "stdin": str(spec.get("stdin", "")),
            "stdout": str(spec.get("stdout", "")),
            "stderr": str(spec.get("stderr", "") or spec.get("stdout", "")),
            "runs on": "the first node" if spec.get("first_node") else "",
            "nodes": "whole ones" if spec.get("exclusive") else "",
            "ranks": f"{spec['ranks_per_node']} on each node" if spec.get("ranks_per_node") else "",
            "interactive": str(spec.get("interactive") or ""),
            "on hangup": str(spec.get("on_hangup", "")),
            "open mode": str(spec.get("open_mode", "")),
            **places,
            "user": info.user,
            "account": info.account,
            "queue": info.queue,
            "priority": str(info.priority),
            "request": _request(info),
            "within": f"one {spec['within']}" if "within" in spec else "",
            "spread": f"over {spec['spread']}s" if "spread" in spec else "",
            "pack": " for up to ".join(f"one {spec['pack']}".split(":")) if "pack" in spec else "",
            "walltime": limit(info.walltime),
            "after": _after(spec.get("dependencies", ())),
            "on dependency failed": str(spec.get("on_dependency_failed", "")) if spec.get("dependencies") else "",
            "submitted": instant(info.submit_ms),
            "started": instant(info.start_ms),
            "ended": instant(info.end_ms),
            "ran": span(ran_ms(info, now_ms)) if info.start_ms else "",
            "used": used,
            "excludes": ", ".join(spec.get("exclude", ())),
            "movable": "yes" if spec.get("movable") else "",
            "apart": ", ".join(spec.get("apart", ())),
            "together": ", ".join(spec.get("together", ())),
            "rather apart": ", ".join(spec.get("prefer_apart", ())),
            "rather together": ", ".join(spec.get("prefer_together", ())),
            "tolerates": ", ".join(spec.get("tolerate", ())),
            "secrets": ", ".join(spec.get("secrets", ())),
            "gates": ", ".join(f"{gate['name']} ({_gate_fields(gate)})" for gate in spec.get("gates", ())),
            "notifies": ", ".join(f"{one['to']} ({', '.join(one['on'])})" for one in spec.get("notify", ())),
            "sandbox": ", ".join(spec.get("sandbox", ())),
            "labels": ", ".join(f"{key}={value}" for key, value in info.labels.items()),
            "comment": str(spec.get("comment", "")),
            "trace": info.trace_id if spec.get("traceparent") else "",
            "removed": ", ".join(
                filter(None, (info.removed, plural(info.tasks_removed, "task") if info.tasks_removed else ""))
            ),
        }
    )


def _extensions(info: JobInfo) -> str:
    """`up to 6 beside its base (task 0): 2 run; held ones wait until it runs`"""
    most = (info.spec or {}).get("extensions", 0)
    if not most:
        return ""
    if (info.spec or {}).get("array"):
        return f"the last {most} of its tasks, which leave first for others"
    where = f"up to {most}, tasks 1 to {most}" if most > 1 else "up to one, task 1"
    held = "" if info.ended or not info.counts.get("held") else "; they are held until the base, task 0, runs"
    return f"{where}, each on one node{held}"


def _service(spec: Mapping[str, Any]) -> str:
    """`restart always, 5 times within 10m; ports http, admin=9000; GET /healthz of http every 10s`"""
    from hal.core.model import Restart, Retries, Service, convert, plural

    if spec.get("service") is None:
        return ""
    service, retries = convert(spec["service"], Service), convert(spec.get("retries", {}), Retries)
    parts = [f"restart {service.restart}"]
    if service.restart is not Restart.NEVER:
        parts[0] += f", {plural(retries.max, 'time')} within {service.window}"
    if service.ports:
        ports = (f"{name}={number}" if number else name for name, number in service.ports.items())
        parts.append(f"ports {', '.join(ports)}")
    if (probe := service.readiness) is not None:
        of = f" of {probe.port}" if probe.port else ""
        what = " ".join(map(_quoted, probe.command)) or (f"GET {probe.http}{of}" if probe.http else f"tcp{of}")
        parts.append(f"ready: {what}, every {probe.interval}")
    if (replaces := service.replaces) is not None:
        parts.append(
            f"replaces job {replaces.job}, at most {replaces.max_unavailable} unavailable, "
            f"given up after {replaces.give_up_after}"
        )
    return "; ".join(parts)


def _gate_fields(gate: dict[str, Any]) -> str:
    from hal.core.model import JobGate, convert

    found = convert(gate, JobGate)
    return f"{found.phase}, {found.policy}, {found.deadline}" + (f", {found.argument}" if found.argument else "")


def _after(dependencies: Any) -> str:
    from hal.core.model import Dependency, convert, dependencies_text

    return dependencies_text(convert(dependencies, tuple[Dependency, ...]))


def _render_attempts(screen: Screen, task: TaskInfo) -> None:
    screen.table(ATTEMPT_COLUMNS, [_attempt_row(attempt) for attempt in task.attempts])


def _attempt_row(attempt: AttemptInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant, span

    ran = None
    if attempt.start_ms is not None:
        end_ms = attempt.end_ms if attempt.end_ms is not None else round(time.time() * 1000)
        ran = end_ms - attempt.start_ms
    return (
        str(attempt.attempt),
        attempt.state.value,
        ",".join(attempt.nodes),
        instant(attempt.start_ms),
        span(ran),
        _exit(attempt.exit_code, attempt.signal),
        attempt.cause,
        attempt.message,
    )


def _exit(code: int | None, signal_number: int | None) -> str:
    if not signal_number:
        return "-" if code is None else str(code)
    from hal.cli.jobs.results import signal_name

    return signal_name(signal_number)


def _usage(task: TaskInfo) -> str:
    from hal.cli.kit.formats import span
    from hal.core.model import readable_amount

    parts = []
    for name, value in task.usage.items():
        if not isinstance(value, int | float) or not value or name == "cgroup":
            continue
        if name.endswith("_ms"):
            parts.append(f"{name.removesuffix('_ms').replace('_', ' ')} {span(int(value))}")
        elif name.endswith("_us"):
            parts.append(f"{name.removesuffix('_us').replace('_', ' ')} {span(int(value) // 1000)}")
        elif name.endswith("_bytes"):
            parts.append(f"{name.removesuffix('_bytes').replace('_', ' ')} {readable_amount('memory', int(value))}")
        else:
            parts.append(f"{name.replace('_', ' ')} {value:g}")
    return f"{', '.join(parts)} ({_counted(task.usage.get('cgroup', 0))})" if parts else ""


def _counted(cgroup: int) -> str:
    """Of which processes a usage is: see docs/keeper.md."""
    whole = [name for bit, name in ((1, "cpu"), (2, "memory"), (4, "io")) if cgroup & bit]
    if len(whole) == 3:
        return "of all its processes"
    first = "of the first process and those it waited for"
    return f"{', '.join(whole)} of all its processes, the rest {first}" if whole else first


def _script(spec: Mapping[str, Any]) -> str:
    """`script of 12 lines (#!/bin/bash): a 'b c'`"""
    from hal.core.model import plural

    lines = str(spec.get("script", "")).splitlines()
    if not lines:
        return ""
    arguments = " ".join(_quoted(word) for word in spec.get("arguments", ()))
    return f"script of {plural(len(lines), 'line')} ({lines[0]}){f': {arguments}' if arguments else ''}"


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
