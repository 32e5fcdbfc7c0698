"""`hal run`: run a command as a job as if it ran here, with its output, its exit code and Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.exec import refuse_lost_input
from hal.cli.jobs.interrupts import Interrupts
from hal.cli.jobs.job_options import job_options, options_of
from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit import exit_codes
from hal.cli.kit.command import pass_screen
from hal.cli.kit.progress import Progress
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.jobs.output_streams import Mixer
    from hal.client.job import Job
    from hal.client.rest.views import JobInfo

MAX_FOLLOWED = 32
"""Tasks x nodes whose output is shown at once; wider jobs are for `hal submit`."""
LOOK_EVERY_S = 2.0
"""How often the line about a pending job is updated."""


@click.command(
    "run",
    cls=TrailingCommand,
    instead={"-o": "the file for the job's output is --stdout FILE"},
    context_settings={"allow_interspersed_args": False},
    examples="""
    hal run -- hostname
    hal run -c 4 -m 8GiB -t 2h -- python train.py
    hal run --nodes 3 -- sh -c 'echo $HAL_NODE_RANK of $HAL_NODES'
    hal run -it -- bash                # a shell on a node
    hal run -i -- sort < names.txt
    hal run --detach -- ./long.sh      # print the id and return
    """,
)
@click.argument("words", metavar="", nargs=-1, type=click.UNPROCESSED)
@click.option("-i", "--interactive", "forward", is_flag=True, help="Pass standard input to the job.")
@click.option(
    "-it", "-ti", "--tty", "terminal", is_flag=True, help="Run it on a terminal; this one is connected to it."
)
@click.option("--detach", is_flag=True, help="Submit the job, print its id and return.")
@job_options
@pass_screen
@click.pass_context
def run(
    ctx: click.Context,
    screen: Screen,
    /,
    words: Sequence[str],
    forward: bool,
    terminal: bool,
    detach: bool,
    **given: Any,
) -> int:
    """The exit code is that of COMMAND, 124 if the job reached its walltime, or 128 + N if signal N ended it.

    Ctrl-C asks whether to cancel the job; a second Ctrl-C cancels it at once. If this terminal is closed, the job
    continues. Standard input is passed on with -i; else what waits there is refused.

    With -it or -i the job is interactive: Ctrl-C goes to COMMAND, and the job ends if this command ends. With --detach
    it goes on, and `hal attach` connects to it.
    """
    behind = trailing_command(ctx)
    # In `hal run git log -- file` the dashes are git's.
    command = [*words, *(["--", *behind] if words and behind is not None else behind or [])]
    if not command:
        raise click.UsageError("there is no command to run; write: hal run -- COMMAND")
    if _is_file_here(command[0]):
        screen.note(
            f"'{command[0]}' is looked up in PATH; to run the file here: ./{command[0]}; "
            f"a script with options in it: hal submit {command[0]}"
        )
    options = options_of(given)
    if forward or terminal:
        from hal.cli.jobs.interactive import check_terminal, interactive_options, run_interactively

        if detach:
            options = interactive_options(options, terminal=terminal)
            options["on_hangup"] = "continue"
            screen.line(screen.client.submit(command, **options).id)
            return exit_codes.OK
        if terminal:
            check_terminal(ctx)
        return run_interactively(screen, command, options, terminal=terminal)
    refuse_lost_input(ctx, "write -i to pass it on, or </dev/null")
    if detach:
        screen.line(screen.client.submit(command, **options).id)
        return exit_codes.OK
    with Interrupts() as interrupts:
        return _Attended(screen, screen.client.submit(command, **options), interrupts).result()


def _is_file_here(word: str) -> bool:
    """Whether it names a file of this directory and no program: as with srun, what is meant is the file."""
    import os
    import shutil

    return os.sep not in word and os.path.isfile(word) and shutil.which(word) is None


class _Attended:
    """A job whose output is shown here while it runs."""

    def __init__(self, screen: Screen, job: Job, interrupts: Interrupts) -> None:
        self._screen = screen
        self._job = job
        self._interrupts = interrupts
        self._asked = False
        self._cancelled = False

    def result(self) -> int:
        """Wait for its end and the end of its output; returns its exit code."""
        from hal.core.model import plural

        info = self._job.refresh()
        tasks, nodes = info.tasks, 1 if (info.spec or {}).get("first_node") else info.nodes
        if tasks * nodes > MAX_FOLLOWED:
            many = f"{plural(tasks, 'task')}{f' on {nodes} nodes each' if nodes > 1 else ''}"
            self._screen.note(f"job {info.id} has {many}; their output is not shown here, see: hal logs {info.id}.0")
            tasks = 0
        with Progress(self._screen) as progress:
            mixer = self._mixer(tasks, nodes, progress)
            mixer.start()
            try:
                info = self._wait(mixer, progress)
            finally:
                with self._interrupts.raised():
                    mixer.finish()
        if mixer.error is not None:
            raise mixer.error
        if mixer.dropped:
            self._screen.note(
                f"job {info.id} wrote faster than its output could be read: {mixer.dropped:,} bytes were dropped; "
                "write large results to a file"
            )
        return self._exit_code(info)

    def _mixer(self, tasks: int, nodes: int, progress: Progress) -> Mixer:
        from hal.cli.jobs.output_streams import Mixer, Source

        sources = []
        for task in range(tasks):
            for rank in range(nodes):
                label = (f"{task}" if tasks > 1 else "") + (f"@{rank}" if nodes > 1 else "")
                prefix = f"[{label}] " if label else ""
                sources += [Source(task, rank, stream, prefix) for stream in ("stdout", "stderr")]
        client, out, err = self._screen.client, sys.stdout.buffer, sys.stderr.buffer
        return Mixer(client, self._job.id, sources, out, err, progress.clear)

    def _wait(self, mixer: Mixer, progress: Progress) -> JobInfo:
        """Wait for the job's end.

        Raises:
            BrokenPipeError: the reader of the output has gone; the job was cancelled, as a program in a pipe would end.
        """
        from hal.core.model import TimedOutError

        while True:
            try:
                with self._interrupts.raised():
                    return self._job.wait(LOOK_EVERY_S)
            except TimedOutError:
                self._show_wait(progress)
            except KeyboardInterrupt:
                progress.clear()
                self._interrupted()
            if isinstance(mixer.error, BrokenPipeError):
                self._cancel()
                raise mixer.error

    def _show_wait(self, progress: Progress) -> None:
        info = self._job.info
        if info.state in ("pending", "held"):
            progress.show(
                f"job {info.id} is {info.state}{f': {info.reason}' if info.reason else ''} (see: hal why {info.id})"
            )
        else:
            progress.clear()

    def _interrupted(self) -> None:
        """Ask the first time; the second time, or where nobody can be asked, cancel the job."""
        if self._cancelled:
            raise KeyboardInterrupt  # it was cancelled and has not ended yet: HAL sees to it
        if not self._asked and self._screen.interactive:
            self._asked = True
            try:
                with self._interrupts.raised():
                    self._screen.note("")
                    sure = self._screen.ask(f"cancel job {self._job.id}? (Ctrl-C again: cancel)")
                if not sure:
                    self._screen.note(f"job {self._job.id} continues")
                    self._asked = False
                    return
            except KeyboardInterrupt:
                self._screen.note("")
        self._cancelled = True
        self._screen.note(f"cancelling job {self._job.id}")
        self._cancel()

    def _cancel(self) -> None:
        from hal.core.model import ConflictError

        try:
            self._job.cancel()
        except ConflictError:
            return  # it has just ended by itself

    def _exit_code(self, info: JobInfo) -> int:
        from hal.cli.jobs.results import job_exit_code, result_line, task_exit_code

        code = task_exit_code(self._job.task(0)) if info.tasks == 1 else job_exit_code(info)
        if info.state not in ("succeeded", "failed") or (info.reason and code):
            self._screen.note(f"job {result_line(info)}")
        return exit_codes.INTERRUPTED if self._cancelled and info.state == "cancelled" else code
