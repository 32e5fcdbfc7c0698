"""`hal show`: everything about one job, or one task with all its attempts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.command import command, pass_screen
from hal.cli.output_files import checked_output, written_whole
from hal.cli.screen import Screen, as_plain

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.views import AttemptInfo, JobInfo, PriorityInfo, TaskInfo

SHOWN_TASKS = 20
TASK_COLUMNS = ("TASK", "STATE", "ATTEMPT", "NODES", "TIME", "EXIT", "MESSAGE")
ATTEMPT_COLUMNS = ("ATTEMPT", "STATE", "NODES", "STARTED", "TIME", "EXIT", "CAUSE", "MESSAGE")


@command(
    "show",
    short_help="Everything about one job or task.",
    output=True,
    examples="""
    hal show 42
    hal show 42.7            # one task, all its attempts
    hal show 42 --graph      # whom it waits for, and who waits for it
    hal show 42 --svg 42.svg # the same as a picture
    hal show 42 -o yaml
    hal show 42 --priority   # why it stands where it stands
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.option(
    "--tasks", type=click.IntRange(0), default=SHOWN_TASKS, show_default=True, help="Tasks shown of an array."
)
@click.option("--priority", is_flag=True, help="The priority of a waiting job, factor by factor, instead.")
@click.option("--graph", is_flag=True, help="Draw whom it waits for and who waits for it.")
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="FILE", callback=checked_output, help="The same as a picture."
)
@pass_screen
def show(screen: Screen, job: str, tasks: int, priority: bool, graph: bool, svg: Path | None) -> None:
    """Everything about JOB, or about one TASK of it with all its attempts."""
    from hal.core.model import parse_task_ref

    number, position = parse_task_ref(job)
    if priority:
        parts = screen.client.priority(number)
        screen.show(parts, lambda: _render_priority(screen, parts))
        return
    handle = screen.client.job(number)
    info = handle.info
    if svg is not None:
        _picture(screen, info, svg)
        return
    if graph:
        _graph(screen, info)
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


def _picture(screen: Screen, info: JobInfo, path: Path) -> None:
    from hal.cli.graph_svg import gather, svg_of

    graph = gather(screen.client, info)
    with written_whole(path) as unfinished:
        unfinished.write_text(svg_of(graph, info.id), "utf-8")
    screen.note(f"{path}: {len(graph.boxes)} jobs{', the nearest' if graph.more else ''}")


def _graph(screen: Screen, info: JobInfo) -> None:
    from hal.cli.graph import Drawing, drawn, title

    drawing = Drawing(screen.client)
    before, after = drawing.before(info), drawing.after(info)

    def render() -> None:
        screen.line(title(info))
        for what, branches in (("waits for", before), ("is waited for by", after)):
            if branches:
                screen.line(what)
            for line in drawn(branches):
                screen.line(line)

    screen.show({"job": info.id, "before": before, "after": after}, render)


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
    from hal.cli.wording import ran_ms, span

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
        screen.note(f"{len(listed)} of {info.tasks} tasks; --tasks N shows more, hal show {handle.id}.7 all about one")


def _render_job(screen: Screen, info: JobInfo, used: str = "") -> None:
    from hal.cli.wording import amounts, instant, limit, ran_ms, span

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
            "user": info.user,
            "account": info.account,
            "queue": info.queue,
            "priority": str(info.priority),
            "request": amounts(info.request) + (f" on each of {info.nodes} nodes" if info.nodes > 1 else ""),
            "walltime": limit(info.walltime),
            "after": _after(spec.get("dependencies", ())),
            "if never met": str(spec.get("on_dependency_failed", "")) if spec.get("dependencies") else "",
            "submitted": instant(info.submit_ms),
            "started": instant(info.start_ms),
            "ended": instant(info.end_ms),
            "ran": span(ran_ms(info, now_ms)) if info.start_ms else "",
            "used": used,
            "labels": ", ".join(f"{key}={value}" for key, value in info.labels.items()),
        }
    )


def _after(dependencies: Any) -> str:
    from hal.core.model import Dependency, convert, dependencies_text

    return dependencies_text(convert(dependencies, tuple[Dependency, ...]))


def _render_attempts(screen: Screen, task: TaskInfo) -> None:
    screen.table(ATTEMPT_COLUMNS, [_attempt_row(attempt) for attempt in task.attempts])


def _attempt_row(attempt: AttemptInfo) -> tuple[str, ...]:
    from hal.cli.wording import instant, span

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
    from hal.cli.endings import signal_name

    return signal_name(signal_number)


def _usage(task: TaskInfo) -> str:
    from hal.cli.wording import span
    from hal.core.model import readable_amount

    parts = []
    for name, value in task.usage.items():
        if not isinstance(value, int | float) or not value:
            continue
        if name.endswith("_ms"):
            parts.append(f"{name.removesuffix('_ms').replace('_', ' ')} {span(int(value))}")
        elif name.endswith("_us"):
            parts.append(f"{name.removesuffix('_us').replace('_', ' ')} {span(int(value) // 1000)}")
        elif name.endswith("_bytes"):
            parts.append(f"{name.removesuffix('_bytes').replace('_', ' ')} {readable_amount('memory', int(value))}")
        else:
            parts.append(f"{name.replace('_', ' ')} {value:g}")
    return ", ".join(parts)


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
