"""The result of a job, as a line for people and as an exit code for scripts."""

from __future__ import annotations

import signal

from hal.cli.kit import exit_codes
from hal.client.rest.views import JobInfo, TaskInfo
from hal.core.model import TaskState


def result_line(info: JobInfo) -> str:
    """`42 succeeded`, `43 failed with exit code 2: …`"""
    code = f" with exit code {info.exit_code}" if info.state is TaskState.FAILED and info.exit_code else ""
    counts = ""
    if info.tasks > 1:
        counts = f" ({', '.join(f'{n} {state}' for state, n in info.counts.items() if n)})"
    return f"{info.id} {info.state}{code}{counts}{f': {info.reason}' if info.reason not in ('', info.state) else ''}"


def job_exit_code(info: JobInfo) -> int:
    """0 for success, 124 for the walltime, 130 for a cancelled job, else the job's own (1 when it has none)."""
    if info.state is TaskState.SUCCEEDED:
        return exit_codes.OK
    if info.state is TaskState.TIMED_OUT:
        return exit_codes.TIMED_OUT
    if info.state is TaskState.CANCELLED:
        return exit_codes.INTERRUPTED
    return shell_code(info.exit_code)


def task_exit_code(info: TaskInfo) -> int:
    """As `job_exit_code`, with 128 + signal for a task that a signal ended."""
    if info.state is TaskState.FAILED and info.signal:
        return exit_codes.SIGNALLED + info.signal
    if info.state is TaskState.FAILED:
        return shell_code(info.exit_code)
    if info.state is TaskState.TIMED_OUT:
        return exit_codes.TIMED_OUT
    return exit_codes.OK if info.state is TaskState.SUCCEEDED else exit_codes.INTERRUPTED


def shell_code(code: int | None) -> int:
    """The exit code of a failure as a shell can pass it on: 1 to 255."""
    return code if code is not None and 0 < code < 256 else exit_codes.FAILED


def signal_name(number: int) -> str:
    """`SIGKILL`"""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
