"""`hal logs`: print the output of a job, its stdout on stdout and its stderr on stderr."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from hal.cli.jobs.array_logs import ArrayLogs
from hal.cli.jobs.job_filters import FAILED_STATES
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.jobs.kept_rest import FollowedOutput
    from hal.client.flows.log_follower import LogFollower
    from hal.client.job import Job
    from hal.core.model import HALError

DEFAULT_LINES: Final = 50
MAX_LINES: Final = 100_000
"""Of one search."""


@command(
    "logs",
    output=True,
    examples="""
    hal logs 42
    hal logs -f 42                # until the task ends
    hal logs 42.7 --stderr        # of task 7
    hal logs 42.0-9 --tail 1      # of ten tasks, each line behind its number
    hal logs 42 --failed          # of the tasks that failed or timed out
    hal logs 42 --rank 2 --tail 20
    hal logs 42 --raw             # byte for byte, whoever owns the job
    hal logs --search 'cuda_error' --since 1h            # in what all your jobs have printed
    hal logs --search '"out of memory" -warning' --job 42
    hal logs --search '' --component controller --severity warning
    """,
)
@click.argument("job", metavar="JOB[.TASKS]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the task has ended.")
@click.option("--stderr", "only_err", is_flag=True, help="Only its stderr, printed on stdout.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both"]), help="Stream to print (default: both).")
@click.option("--task", type=click.IntRange(0), metavar="T", help="Task of an array (default: all of them).")
@click.option("--failed", is_flag=True, help="Only tasks that failed or timed out.")
@click.option("--rank", type=click.IntRange(0), default=0, metavar="R", help="Rank within a gang (default: 0).")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Attempt to print (default: the latest).")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="Print byte for byte on a terminal, too, even for jobs of other users.")
@click.option(
    "--search", metavar="TEXT", help='Search what the collector has kept: words, "a phrase", word*, -word, OR.'
)
@click.option("--since", metavar="TIME", help="With --search: lines since then: 1h or 2d ago, 08:00, yesterday.")
@click.option("--until", metavar="TIME", help="With --search: lines before then.")
@click.option("--job", "of_job", metavar="JOB", help="With --search: of this job.")
@click.option("--node", metavar="NAME", help="With --search: from this node.")
@click.option("--component", metavar="NAME", help="With --search: `step` for what jobs print, or a process of HAL.")
@click.option("--severity", metavar="LEVEL", help="With --search: at least debug, info, warning or error.")
@click.option("-n", "--limit", type=click.IntRange(1, MAX_LINES), help=f"With --search: most lines (default: {DEFAULT_LINES}).")  # fmt: skip  # noqa: E501
@click.option(
    "--collector", metavar="URL", help="The collector (default: $HAL_COLLECTOR, else the one beside this HAL)."
)
@pass_screen
def logs(
    screen: Screen,
    job: str | None,
    follow: bool,
    only_err: bool,
    stream: str | None,
    task: int | None,
    failed: bool,
    rank: int,
    attempt: int | None,
    tail: int | None,
    raw: bool,
    search: str | None,
    since: str | None,
    until: str | None,
    of_job: str | None,
    node: str | None,
    component: str | None,
    severity: str | None,
    limit: int | None,
    collector: str | None,
) -> None:
    """Of several tasks, each line begins with the number of its task.

    The job's stdout goes to stdout, its stderr to stderr. Outputs are bounded; the newest bytes are kept. Where
    a job has named files of its own (--stdout), a note names them.

    On a terminal, escape sequences in the output of other users' jobs are shown as text.

    If the node of a job is lost, or its output was deleted, what the collector has kept is printed; a note says so.
    With --follow, too; the node is tried again for two minutes, and a further attempt is followed wherever it runs.
    --search looks through what the collector keeps of all your jobs, for operators of all jobs and of HAL's processes.
    """
    if search is not None:
        if of_job is not None and job is not None:
            raise click.UsageError(f"the job is named twice, by {job} and by --job {of_job}; name it once")
        _search(screen, search, job or of_job, task, since, until, node, component, severity, limit, collector)
        return
    if job is None:
        raise click.UsageError("name a JOB, or what to look for: --search TEXT")
    used = {"--since": since, "--until": until, "--job": of_job, "--node": node, "--component": component,
            "--severity": severity, "--limit": limit}  # fmt: skip
    if named := next((name for name, value in used.items() if value is not None), ""):
        raise click.UsageError(f"{named} goes with --search")
    if screen.plain:
        raise click.UsageError("-o goes with --search; an output is printed as it is")
    from hal.core.model import NotFoundError, UnreachableError, parse_tasks_ref
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
            collector=collector or "",
        )
        several.follow() if follow else several.print_all()
        return
    out = sys.stdout.buffer
    targets = {"stdout": out, "stderr": out if chosen == "stderr" else sys.stderr.buffer}
    foreign = not raw and _is_foreign(screen, handle)
    copies = [_Copy(handle, name, which, rank, attempt, tail, follow, targets[name], foreign) for name in streams]
    for copy in copies if follow else ():
        copy.fall_back(screen, collector or "")
    if not follow:
        for copy in copies:
            try:
                copy()
            except (NotFoundError, UnreachableError) as error:
                if copy.any or not _print_kept(screen, copy, error, collector):
                    raise
    else:
        _copy_together(copies)
    if not any(copy.any for copy in copies) and (said := _never_ran(handle, which)):
        screen.note(said)
    for place in dict.fromkeys(copy.elsewhere for copy in copies if copy.elsewhere):
        screen.note(f"task {number}.{which}: {place}")
    if gone := [copy.dropped for copy in copies if copy.dropped]:
        screen.note(f"task {number}.{which}: the oldest {' and '.join(gone)} were dropped (outputs are bounded)")


def _search(
    screen: Screen,
    text: str,
    job: str | None,
    task: int | None,
    since: str | None,
    until: str | None,
    node: str | None,
    component: str | None,
    severity: str | None,
    limit: int | None,
    collector: str | None,
) -> None:
    from hal.cli.jobs.log_search import print_found
    from hal.cli.kit.instants import ago_ms
    from hal.core.model import parse_tasks_ref

    filters: dict[str, Any] = {
        "query": text, "task": task, "node": node, "component": component, "severity": severity,
    }  # fmt: skip
    if job is not None:
        ref = parse_tasks_ref(job)
        filters["job"] = ref.job
        if ref.ranges:
            if ref.task is None:
                raise click.UsageError("a search is about one task, or all of them")
            filters["task"] = ref.task
    if since is not None:
        filters["since_ms"] = ago_ms(since, "--since")
    if until is not None:
        filters["until_ms"] = ago_ms(until, "--until")
    print_found(screen, filters, limit or DEFAULT_LINES, collector or "")


def _print_kept(screen: Screen, copy: _Copy, error: HALError, collector: str | None) -> bool:
    """Print what the collector has of an output that cannot be read at its node; returns whether it has any."""
    from hal.core.model import HALError

    try:
        some = copy.kept(screen, collector or "")
    except HALError:
        return False  # the first error says more
    if some:
        screen.note(f"{error}; printed as far as the collector has kept it")
    return some


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
        self._followed: FollowedOutput | None = None
        self.any = False
        """Whether there was anything."""

    def __call__(self) -> None:
        tail_bytes = None
        if self._tail is not None:
            from hal.cli.jobs.output_streams import Source, offset_of_last_lines

            source = Source(self._task, self._rank, self._stream)
            tail_bytes = offset_of_last_lines(self._job.client, self._job.id, source, self._attempt, self._tail)
        pieces = self._follower.pieces(follow=self._follow, tail_bytes=tail_bytes)
        if self._followed is not None:
            pieces = self._followed.pieces(tail_bytes)
        for piece in pieces:
            self.any = True
            self._to.write(piece if self._terminal is None else self._terminal.shown(piece))
            self._to.flush()
        if self._terminal is not None:
            self._to.write(self._terminal.shown(b"", last=True))
            self._to.flush()

    def fall_back(self, screen: Screen, collector: str) -> None:
        """Follow it with the help of the collector, if its node is away."""
        from hal.cli.jobs.kept_rest import FollowedOutput

        self._followed = FollowedOutput(screen, self._job, self.filters(), collector)

    def filters(self) -> dict[str, Any]:
        """The output, as the collector's REST names it."""
        return {"task": self._task, "rank": self._rank, "attempt": self._attempt, "stream": self._stream}

    def kept(self, screen: Screen, collector: str) -> bool:
        """Copy what the collector has kept instead; returns whether it has any.

        Raises:
            HALError: there is no collector, or it has nothing.
        """
        from hal.cli.jobs.log_search import kept_pieces

        for piece in kept_pieces(screen, self._job.id, self.filters(), tail=self._tail, url=collector):
            self.any = True
            self._to.write(piece if self._terminal is None else self._terminal.shown(piece))
        self._to.flush()
        return self.any

    @property
    def _present(self) -> LogFollower:
        return self._follower if self._followed is None else self._followed.follower

    @property
    def elsewhere(self) -> str:
        """Where the stream went instead of here, for people; '' if it came here."""
        path, node = self._present.elsewhere
        return f"its output goes to {path} on node {node}, as the job asks; HAL keeps none of it" if path else ""

    @property
    def dropped(self) -> str:
        """How much of the stream is no longer kept, for people; '' if all of it was printed."""
        from hal.core.model import readable_amount

        gone = self._present.dropped
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
