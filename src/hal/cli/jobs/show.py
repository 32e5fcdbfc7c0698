"""`hal show`: show one job in full, or one task with all its attempts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.graph import draw_trees
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen, as_plain

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.rest.views import AttemptInfo, JobInfo, PriorityInfo, TaskInfo

SHOWN_TASKS = 20
TASK_COLUMNS = ("TASK", "STATE", "ATTEMPT", "NODES", "TIME", "EXIT", "MESSAGE")
ATTEMPT_COLUMNS = ("ATTEMPT", "STATE", "NODES", "STARTED", "TIME", "EXIT", "CAUSE", "MESSAGE")


@command(
    "show",
    output=True,
    examples="""
    hal show 42
    hal show 42.7            # task 7, with all its attempts
    hal show 42 -o yaml
    hal show 42 --priority   # its priority, factor by factor
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.option(
    "--tasks", type=click.IntRange(0), default=SHOWN_TASKS, show_default=True, help="Most tasks of an array to show."
)
@click.option("--priority", is_flag=True, help="Show the priority of a pending job, factor by factor.")
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
def show(screen: Screen, job: str, tasks: int, priority: bool, graph: bool, svg: Path | None) -> None:
    """For a task, all its attempts are listed."""
    from hal.core.model import parse_task_ref

    number, position = parse_task_ref(job)
    if priority:
        parts = screen.client.priority(number)
        screen.show(parts, lambda: _render_priority(screen, parts))
        return
    handle = screen.client.job(number)
    info = handle.info
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
    if info.tasks == 1:
        task = handle.task(0)
        screen.show({**as_plain(info), "task": task}, lambda: _render_single(screen, info, task))
        return
    listed = list(handle.tasks(limit=tasks)) if tasks else []
    screen.show({**as_plain(info), "task_list": listed}, lambda: _render_array(screen, handle, info, listed))


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
    screen.note(f"{path}: {len(graph.boxes)} jobs{', the nearest' if graph.truncated else ''}")


def _render_single(screen: Screen, info: JobInfo, task: TaskInfo) -> None:
    _render_job(screen, info, used=_usage(task))
    if task.attempts:
        screen.line()
        _render_attempts(screen, task)


def _render_task(screen: Screen, info: JobInfo, task: TaskInfo) -> None:
    screen.fields(
        {
            "task": f"{task.id} of {info.name or 'job'}",
            "state": task.state.value,
            "nodes": ", ".join(task.nodes),
            "message": task.message,
            "used": _usage(task),
        }
    )
    if task.attempts:
        screen.line()
        _render_attempts(screen, task)


def _render_array(screen: Screen, handle: Job, info: JobInfo, listed: list[TaskInfo]) -> None:
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
            task.message or task.cause,
        )
        for task in listed
    ]
    screen.table(TASK_COLUMNS, rows)
    if info.tasks > len(listed):
        screen.note(
            f"{len(listed)} of {info.tasks} tasks are shown (more: --tasks N; one in full: hal show {handle.id}.7)"
        )


def _render_job(screen: Screen, info: JobInfo, used: str = "") -> None:
    from hal.cli.jobs.job_cells import ran_ms
    from hal.cli.kit.formats import amounts, instant, limit, span

    now_ms = round(time.time() * 1000)
    spec = info.spec or {}
    counts = ", ".join(f"{count} {state}" for state, count in info.counts.items() if count)
    command = " ".join(_quoted(word) for word in spec.get("command", ())) or spec.get("script", "").split("\n")[0]
    screen.fields(
        {
            "job": f"{info.id} {info.name}".rstrip(),
            "state": f"{info.state.value}{f': {info.reason}' if info.reason not in ('', info.state) else ''}",
            "tasks": f"{info.tasks}: {counts}" if info.tasks > 1 else "",
            "exit code": "" if info.exit_code is None else str(info.exit_code),
            "command": command,
            "workdir": str(spec.get("workdir", "")),
            "stdin": str(spec.get("stdin", "")),
            "stdout": str(spec.get("stdout", "")),
            "stderr": str(spec.get("stderr", "") or spec.get("stdout", "")),
            "open mode": str(spec.get("open_mode", "")),
            "user": info.user,
            "account": info.account,
            "queue": info.queue,
            "priority": str(info.priority),
            "request": amounts(info.request) + (f" on each of {info.nodes} nodes" if info.nodes > 1 else ""),
            "walltime": limit(info.walltime),
            "after": _after(spec.get("dependencies", ())),
            "on dependency failed": str(spec.get("on_dependency_failed", "")) if spec.get("dependencies") else "",
            "submitted": instant(info.submit_ms),
            "started": instant(info.start_ms),
            "ended": instant(info.end_ms),
            "ran": span(ran_ms(info, now_ms)) if info.start_ms else "",
            "used": used,
            "excludes": ", ".join(spec.get("exclude", ())),
            "secrets": ", ".join(spec.get("secrets", ())),
            "gates": ", ".join(f"{gate['name']} ({_gate_fields(gate)})" for gate in spec.get("gates", ())),
            "sandbox": ", ".join(spec.get("sandbox", ())),
            "labels": ", ".join(f"{key}={value}" for key, value in info.labels.items()),
            "comment": str(spec.get("comment", "")),
            "trace": info.trace_id if spec.get("traceparent") else "",
            "removed": info.removed,
        }
    )


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


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
