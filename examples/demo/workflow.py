"""The workflow of the demo: five kinds of job, submitted and watched with the public Python client."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

import hal

STEPS: Final = Path(__file__).resolve().parent / "steps"
TASKS: Final = 240
WALLTIME_OF_ENDLESS: Final = "4s"
DEADLINE_S: Final = 100.0
"""The workflow needs about twenty seconds on two cores; past this something is wrong."""
POLL_S: Final = 0.2

STYLES: Final = {"succeeded": "green", "failed": "red", "timed-out": "yellow", "running": "cyan"}


@dataclass(frozen=True)
class Part:
    """One job of the workflow: what it shows and how it should end."""

    job: hal.Job
    shows: str
    ends: hal.TaskState = hal.TaskState.SUCCEEDED


def submit_workflow(client: hal.Client, shared: Path) -> list[Part]:
    """Submit the five jobs; `shared` is a directory that their tasks write to."""

    def step(name: str) -> str:
        return str(STEPS / name)

    python = [sys.executable, "-I", "-S"]
    env = {"DEMO_DIR": str(shared)}
    ring = client.submit([*python, step("ring.py")], name="ring", nodes=3, cpus=0.5, walltime="1m", env=env)
    flaky = client.submit(
        ["/bin/sh", step("flaky.sh")], name="flaky", cpus=0.25, walltime="1m", retries={"max": 2, "backoff": "1s"}
    )
    endless = client.submit(["sleep", "600"], name="endless", cpus=0.25, walltime=WALLTIME_OF_ENDLESS)
    darts = client.submit(
        [*python, step("darts.py")], name="darts", array=TASKS, cpus=0.5, memory="64MiB", walltime="1m", env=env
    )
    estimate = client.submit(
        [*python, step("estimate.py")], name="estimate", after=darts, cpus=0.5, walltime="1m", env=env
    )
    return [
        Part(ring, "a gang: three nodes at once"),
        Part(flaky, "fails once and is retried"),
        Part(endless, f"never ends; its limit is {WALLTIME_OF_ENDLESS}", hal.TaskState.TIMED_OUT),
        Part(darts, f"an array of {TASKS} tasks"),
        Part(estimate, "starts when the whole array has succeeded"),
    ]


def watch(parts: list[Part], console: Console) -> None:
    """Show the jobs live until all have ended (on something that is no terminal: a line every two seconds).

    Raises:
        hal.TimedOutError: they did not end within `DEADLINE_S`.
    """
    if console.is_terminal:
        with Live(_progress(parts), console=console, refresh_per_second=10, transient=True) as live:
            for _ in _until_ended(parts):
                live.update(_progress(parts))
    else:
        printed = ""
        for turn, _ in enumerate(_until_ended(parts)):
            line = "  ".join(f"{part.job.info.name} {_ended(part)}/{part.job.info.tasks}" for part in parts)
            if turn % round(2 / POLL_S) == 0 and line != printed:
                console.print(f"  {line}")
                printed = line


def _until_ended(parts: list[Part]) -> Iterator[None]:
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        for part in parts:
            if not part.job.info.ended:
                part.job.refresh()
        yield
        waiting = [part.job for part in parts if not part.job.info.ended]
        if not waiting:
            return
        if time.monotonic() > deadline_s:
            raise hal.TimedOutError(f"not ended after {DEADLINE_S:g} s: {', '.join(job.info.name for job in waiting)}")
        time.sleep(POLL_S)


def _ended(part: Part) -> int:
    counts = part.job.info.counts
    return sum(count for state, count in counts.items() if hal.TaskState(state).ended)


def _progress(parts: list[Part]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("job", "", "tasks", "running", "state"):
        table.add_column(column, justify="right" if column in ("tasks", "running") else "left")
    for part in parts:
        info = part.job.info
        ended = _ended(part)
        table.add_row(
            info.name,
            ProgressBar(total=info.tasks, completed=ended, width=30),
            f"{ended}/{info.tasks}",
            str(info.counts.get("running", 0) or ""),
            f"[{STYLES.get(info.state, 'default')}]{info.state}[/]",
        )
    return table


@dataclass(frozen=True)
class Run:
    """One attempt as it happened: which task of which job, where, from when to when, and how it ended."""

    job: str
    task: int
    attempt: int
    nodes: tuple[str, ...]
    start_ms: int
    end_ms: int
    state: str


def runs_of(parts: list[Part]) -> list[Run]:
    """Every attempt of the workflow, by start."""
    runs: list[Run] = []
    for part in parts:
        name = part.job.info.name
        for task in part.job.tasks():
            tries = part.job.task(task.task).attempts if (task.attempt or 0) > 1 else ()
            for one in tries or (task,):
                if one.start_ms is not None and one.end_ms is not None:
                    runs.append(
                        Run(name, task.task, one.attempt or 1, one.nodes, one.start_ms, one.end_ms, str(one.state))
                    )
    return sorted(runs, key=lambda run: (run.start_ms, run.job, run.task))


def who_ran_where(parts: list[Part], runs: list[Run]) -> Table:
    """The table at the end: each job with its tasks by node, when it ran, and how it ended."""
    began_ms = min(run.start_ms for run in runs)
    nodes = sorted({node for run in runs for node in run.nodes})
    table = Table(title="Who ran where and when", title_justify="left", title_style="bold")
    table.add_column("job", no_wrap=True)
    table.add_column("shows")
    table.add_column("attempts", justify="right")
    for node in nodes:
        table.add_column(node, justify="right")
    table.add_column("from", justify="right")
    table.add_column("to", justify="right")
    table.add_column("ended", no_wrap=True)
    for part in parts:
        mine = [run for run in runs if run.job == part.job.info.name]
        state = part.job.info.state
        table.add_row(
            f"{part.job.id} {part.job.info.name}",
            part.shows,
            str(len(mine)),
            *(str(sum(node in run.nodes for run in mine) or "") for node in nodes),
            f"{(min(run.start_ms for run in mine) - began_ms) / 1000:.1f} s",
            f"{(max(run.end_ms for run in mine) - began_ms) / 1000:.1f} s",
            f"[{STYLES.get(state, 'default')}]{state}[/]",
        )
    return table
