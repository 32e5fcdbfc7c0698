"""`hal logs`: print the output of a job, its stdout on stdout and its stderr on stderr."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

import click

from hal.cli.jobs.array_logs import ArrayLogs
from hal.cli.jobs.job_filters import FAILED_STATES
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.job import Job


@command(
    "logs",
    examples="""
    hal logs 42
    hal logs -f 42                # until the task ends
    hal logs 42.7 --stderr        # of task 7
    hal logs 42.0-9 --tail 1      # of ten tasks, each line behind its number
    hal logs 42 --failed          # of the tasks that failed or timed out
    hal logs 42 --rank 2 --tail 20
    hal logs 42 --raw             # byte for byte, whoever owns the job
    """,
)
@click.argument("job", metavar="JOB[.TASKS]")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the task has ended.")
@click.option("--stderr", "only_err", is_flag=True, help="Only its stderr, printed on stdout.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both"]), help="Stream to print (default: both).")
@click.option("--task", type=click.IntRange(0), metavar="T", help="Task of an array (default: all of them).")
@click.option("--failed", is_flag=True, help="Only tasks that failed or timed out.")
@click.option("--rank", type=click.IntRange(0), default=0, metavar="R", help="Rank within a gang (default: 0).")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Attempt to print (default: the latest).")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="Print byte for byte on a terminal, too, even for jobs of other users.")
@pass_screen
def logs(
    screen: Screen,
    job: str,
    follow: bool,
    only_err: bool,
    stream: str | None,
    task: int | None,
    failed: bool,
    rank: int,
    attempt: int | None,
    tail: int | None,
    raw: bool,
) -> None:
    """Of several tasks, each line begins with the number of its task.

    The job's stdout goes to stdout, its stderr to stderr. Outputs are bounded; the newest bytes are kept. Where
    a job has named files of its own (--stdout), a note names them.

    On a terminal, escape sequences in the output of other users' jobs are shown as text.
    """
    from hal.core.model import parse_tasks_ref
    from hal.core.model.index_ranges import text_of

    ref = parse_tasks_ref(job)
    if ref.ranges and task is not None:
        raise click.UsageError(f"the task is named twice, by {job} and by --task {task}; name it once")
    if only_err and stream not in (None, "stderr"):
        raise click.UsageError(f"--stderr and --stream {stream} cannot be combined")
    chosen = "stderr" if only_err else stream or "both"
    streams = ["stdout", "stderr"] if chosen == "both" else [chosen]
    handle = screen.client.job(ref.job)
    number, which = ref.job, ref.task if ref.ranges else task
    if which is None and not ref.ranges and handle.info.tasks == 1 and not failed:
        which = 0
    if which is None or failed:
        if attempt is not None:
            raise click.UsageError("--attempt is about one task; name it: JOB.TASK")
        if failed and follow:
            raise click.UsageError("--failed and --follow cannot be combined")
        inside = text_of(ref.ranges) if which is None else str(which)
        several = ArrayLogs(
            screen,
            handle,
            tasks=f"[{inside}]" if ref.by_index else inside,
            state=FAILED_STATES if failed else "",
            streams=streams,
            rank=rank,
            tail=tail,
            foreign=not raw and _is_foreign(screen, handle),
        )
        several.follow() if follow else several.print_all()
        return
    out = sys.stdout.buffer
    targets = {"stdout": out, "stderr": out if chosen == "stderr" else sys.stderr.buffer}
    foreign = not raw and _is_foreign(screen, handle)
    copies = [_Copy(handle, name, which, rank, attempt, tail, follow, targets[name], foreign) for name in streams]
    if not follow:
        for copy in copies:
            copy()
    else:
        _copy_together(copies)
    if not any(copy.any for copy in copies) and (said := _never_ran(handle, which)):
        screen.note(said)
    for place in dict.fromkeys(copy.elsewhere for copy in copies if copy.elsewhere):
        screen.note(f"task {number}.{which}: {place}")
    if gone := [copy.dropped for copy in copies if copy.dropped]:
        screen.note(f"task {number}.{which}: the oldest {' and '.join(gone)} were dropped (outputs are bounded)")


def _never_ran(job: Job, task: int) -> str:
    """That a task has not run, and why; '' if it has."""
    found = job.task(task)
    if found.attempt:
        return ""
    name = f"task {found.id}" if job.info.tasks > 1 else f"job {job.id}"
    why = f": {found.reason or job.info.reason}" if found.reason or job.info.reason else ""
    if found.ended:
        return f"{name} never ran; it is {found.state}{why}"
    return f"{name} has not run yet; it is {found.state}{why} (see: hal why {job.id})"


def _is_foreign(screen: Screen, job: Job) -> bool:
    """Whether a terminal shows the output of another user's job."""
    if not screen.out.isatty() and not screen.err.isatty():
        return False
    from hal.client.rest import access_calls

    return screen.client.call(access_calls.who_am_i()).user != job.info.user


class _Copy:
    """Copies one stream here."""

    def __init__(
        self,
        job: Job,
        stream: str,
        task: int,
        rank: int,
        attempt: int | None,
        tail: int | None,
        follow: bool,
        to: BinaryIO,
        foreign: bool,
    ) -> None:
        self._job, self._stream, self._task, self._rank = job, stream, task, rank
        self._attempt, self._tail, self._follow, self._to = attempt, tail, follow, to
        self._follower = job.follower(stream, task=task, rank=rank, attempt=attempt)
        from hal.cli.jobs.output_streams import ForTerminal

        self._terminal = ForTerminal() if foreign and to.isatty() else None
        self.error: Exception | None = None
        self.any = False
        """Whether there was anything."""

    def __call__(self) -> None:
        tail_bytes = None
        if self._tail is not None:
            from hal.cli.jobs.output_streams import Source, offset_of_last_lines

            source = Source(self._task, self._rank, self._stream)
            tail_bytes = offset_of_last_lines(self._job.client, self._job.id, source, self._attempt, self._tail)
        for piece in self._follower.pieces(follow=self._follow, tail_bytes=tail_bytes):
            self.any = True
            self._to.write(piece if self._terminal is None else self._terminal.shown(piece))
            self._to.flush()
        if self._terminal is not None:
            self._to.write(self._terminal.shown(b"", last=True))
            self._to.flush()

    @property
    def elsewhere(self) -> str:
        """Where the stream went instead of here, for people; '' if it came here."""
        path, node = self._follower.elsewhere
        return f"its output goes to {path} on node {node}, as the job asks; HAL keeps none of it" if path else ""

    @property
    def dropped(self) -> str:
        """How much of the stream is no longer kept, for people; '' if all of it was printed."""
        from hal.core.model import readable_amount

        gone = self._follower.dropped
        return f"{readable_amount('disk', gone)} of its {self._stream}" if gone else ""

    def in_thread(self) -> None:
        from hal.core.model import HALError

        try:
            self()
        except (HALError, BrokenPipeError) as error:
            self.error = error


def _copy_together(copies: list[_Copy]) -> None:
    threads = [threading.Thread(target=copy.in_thread, daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        return
    for copy in copies:
        if copy.error is not None:
            raise copy.error
