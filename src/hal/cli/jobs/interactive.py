"""Interactive jobs at this terminal: begun with `hal run -it`, attached to with `hal attach`."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.kit.progress import Progress
    from hal.client.job import Job
    from hal.client.specs import JobOptions
    from hal.client.step_streams import StepStream

SHORTEST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
"""Between looks at a job that has not begun; doubled from one to the other."""
SOON_S: Final = 0.3
"""A job that has not begun by then is asked for the reason, and from then on"""
WHY_EVERY_S: Final = 5.0
"""this often."""
NOT_BEGUN: Final = frozenset({"pending", "held", "allocated", "preparing"})
ENDING_S: Final = 30.0
"""How long a job may take to be over once its program is."""


def check_terminal(ctx: click.Context) -> None:
    """Check that this is a terminal.

    Raises:
        UsageError: it is none.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("a terminal was asked for, and this is none; write -i to pass input on", ctx)


def interactive_options(options: JobOptions, *, terminal: bool) -> JobOptions:
    """The options of a job with people attached to its program: of several nodes, it runs on the first one."""
    made: JobOptions = {**options, "interactive": "terminal" if terminal else "pipes"}
    if made.get("nodes", 1) > 1:
        made["first_node"] = True
    return made


def begin_interactive(screen: Screen, command: list[str], options: JobOptions) -> Job:
    """Submit an interactive job, and wait until its program may be attached to; what interrupts that cancels the job.

    Raises:
        SessionEndedError: a signal came.
        KeyboardInterrupt: Ctrl-C was typed.
    """
    from hal.cli.jobs.interrupts import Interrupts
    from hal.cli.kit.progress import Progress

    with Interrupts() as interrupts:
        job = screen.client.submit(command, **options)
        try:
            with _signals_raise(), Progress(screen) as progress, interrupts.raised():
                _await_start(screen, job, progress)
        except BaseException:
            _cancel(job)
            screen.note(f"job {job.id} cancelled")
            raise
    return job


def run_interactively(screen: Screen, command: list[str], options: JobOptions, *, terminal: bool) -> int:
    """Submit an interactive job and attach to it; returns its exit code. It ends if this ends."""
    from hal.cli.jobs.exec import task_ref
    from hal.cli.jobs.results import task_exit_code
    from hal.cli.jobs.step_session import SessionEndedError
    from hal.core.model import ConflictError

    try:
        job = begin_interactive(screen, command, interactive_options(options, terminal=terminal))
    except SessionEndedError as error:
        return exit_codes.SIGNALLED + error.number
    try:
        code = attach_here(screen, task_ref(job.id)[0], 0, terminal=terminal)
    except ConflictError:
        if not job.refresh().ended:
            raise
        code = exit_codes.OK  # it was over before anybody could attach
    info = job.wait(ENDING_S)
    if info.state != "succeeded":
        screen.note(f"job {job.id} {info.state}{f': {info.reason}' if info.reason else ''}")
        return task_exit_code(job.task(0))
    return code


def attach_here(screen: Screen, job: int, task: int, *, terminal: bool | None = None, leave: bool = False) -> int:
    """Attach to a running interactive step; returns the exit code of its program, or of the signal that ended this.

    Args:
        terminal: it runs on one; None: as this is one.
        leave: Ctrl-P Ctrl-Q detaches.
    """
    from hal.cli.jobs.step_session import Session, SessionEndedError
    from hal.cli.kit.raw_terminal import RawTerminal
    from hal.client.step_streams import connections_of, open_stream

    terminal = sys.stdin.isatty() and sys.stdout.isatty() if terminal is None else terminal
    stream: StepStream = open_stream(connections_of(screen.address), job, kind="attach", task=task)
    sys.stdout.flush()
    try:
        session = Session(stream, stdin=0, may_leave=leave and terminal)
        return session.run(RawTerminal(0) if terminal else None)
    except SessionEndedError as error:
        if error.number == 0:
            screen.note("")
            screen.note(f"detached from job {job}; `hal attach {job}` returns to it while it runs")
            return exit_codes.OK
        return exit_codes.SIGNALLED + error.number


def _await_start(screen: Screen, job: Job, progress: Progress) -> None:
    """Until its program runs, or has run; meanwhile shows why it waits."""
    pause_s = SHORTEST_PAUSE_S
    asked_s, shown = time.monotonic() + SOON_S - WHY_EVERY_S, ""
    while (info := job.refresh()).state in NOT_BEGUN:
        if info.state in ("pending", "held") and time.monotonic() - asked_s >= WHY_EVERY_S:
            asked_s = time.monotonic()
            why = job.why()
            text = f"job {job.id} is {info.state}: {why.message}"
            if progress.shown:
                progress.show(text)
            elif why.reason != shown:
                screen.note(text)
            shown = why.reason
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP end this as an error, so that what was begun is ended, too."""
    from hal.cli.jobs.step_session import ENDING, SessionEndedError

    def end(number: int, frame: FrameType | None) -> None:
        raise SessionEndedError(number)

    before = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(job: Job) -> None:
    from hal.core.model import ConflictError

    with contextlib.suppress(ConflictError):  # it has just ended by itself
        job.cancel()


@command(
    "attach",
    examples="""
    hal attach 42      # the terminal, or the pipes, of a job begun with hal run -it
    """,
)
@click.argument("job", metavar="JOB")
@pass_screen
def attach(screen: Screen, job: str) -> int:
    """Several people may be attached: each sees the output, and what any of them types goes to the program. Of the
    output before, the last 64 KiB are shown.

    Ctrl-P Ctrl-Q detaches. A job that was not submitted with --detach ends when nobody is attached any more.
    """
    from hal.cli.jobs.exec import task_ref

    number, task = task_ref(job)
    return attach_here(screen, number, task, leave=True)
