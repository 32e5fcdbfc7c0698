"""A submitted job, for synchronous code.

Generated from async_job.py by tools/sync_client.py: edit that file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hal.client.flows.ended_tasks import ended_tasks
from hal.client.flows.log_follower import LogFollower
from hal.client.flows.steps import ROUND_S, waited
from hal.client.flows.task_outputs import task_outputs
from hal.client.job_handle import SyncJobHandle
from hal.client.progress_line import ProgressLine
from hal.client.rest import calls
from hal.client.rest.outcome import error_of
from hal.client.rest.views import JobInfo, LogPart, Outcome, ScoresInfo, TaskInfo, TaskOutput, UpdatedInfo, WhyInfo

if TYPE_CHECKING:
    from hal.client.flows.shipping import Fetched
    from hal.client.rest.file_calls import CollectedInfo
    from hal.client.specs import JobOptions
    from hal.client.submission import SpecLike
    from hal.client.sync_client import Client


class Job(SyncJobHandle):
    """One submitted job."""

    client: Client

    def __init__(self, client: Client, job_id: str, info: JobInfo | None = None) -> None:
        super().__init__(job_id, info)
        self.client = client

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled job holds its client's address, token included, and what was last read of it."""
        return Job, (self.client, self.id, self._info)

    def refresh(self) -> JobInfo:
        """Read it again.

        Raises:
            NotFoundError: there is no such job.
        """
        self._info = self.client.call(calls.job(self.id))
        return self._info

    def wait(self, timeout: float | None = None, *, check: bool = False, progress: bool = False) -> JobInfo:
        """Wait until it has ended.

        Args:
            timeout: seconds; None: no limit.
            check: raise if it did not succeed.
            progress: show how far it has come in a line of the terminal, or of a notebook.
        Raises:
            TimedOutError: it has not ended by then; it continues.
            JobFailedError: with `check`, it failed, was cancelled or reached its walltime; it has the tasks that failed
                and the end of stderr.
        """
        with ProgressLine(shown=progress) as line:

            def seen(info: JobInfo) -> None:
                self._seen(info)
                line.show_job(info)

            round_s = ROUND_S if progress else calls.LONG_POLL_S
            flow = waited(self.id, timeout, check=check, clock=time.monotonic, seen=seen, round_s=round_s)
            return self.client.drive(flow)

    def replace(
        self,
        what: str | Sequence[str] | SpecLike | None = None,
        *,
        max_unavailable: int = 0,
        give_up_after: str = "5m",
        **options: Unpack[JobOptions],
    ) -> Job:
        """Let a new job take the place of this service, task by task; return it as soon as it is submitted.

        Args:
            what: the new command, or a whole job; None: this one's.
            max_unavailable: ready tasks that may be missing meanwhile.
            give_up_after: it is given up, and this job goes on, when no further task became ready for so long.
            options: keywords of `submit` that the new job has instead of this one's; `env` adds to this one's.
        Raises:
            SpecError: malformed, or this is no service.
            NotFoundError, ConflictError: it has ended, is held, or is being replaced.
        """
        made = self.replacement(what, max_unavailable=max_unavailable, give_up_after=give_up_after, **options)
        return self.client.submit(made)

    def replacement(
        self,
        what: str | Sequence[str] | SpecLike | None = None,
        *,
        max_unavailable: int = 0,
        give_up_after: str = "5m",
        **options: Unpack[JobOptions],
    ) -> dict[str, Any]:
        """The spec that `replace` would submit, as plain data; `client.check` says whether it would be accepted.

        Raises:
            SpecError: malformed, or this is no service.
        """
        from hal.client.replacing import replacing_spec
        from hal.core.model import parse_task_ref

        number, _ = parse_task_ref(self.id)
        old = (self.refresh()).spec or {}
        replaces = {"job": number, "max_unavailable": max_unavailable, "give_up_after": give_up_after}
        return replacing_spec(old, what, options, environ=os.environ, workdir=os.getcwd(), replaces=replaces)

    def tasks_as_ended(self, timeout: float | None = None) -> Iterator[TaskInfo]:
        """Give each of its tasks once, as soon as it has ended for good, in the order in which they end.

        Args:
            timeout: seconds for all together; None: no limit.
        Raises:
            TimedOutError: not all have ended by then; they continue.
        """
        return self.client.items_of(ended_tasks(self.id, timeout, clock=time.monotonic))

    def outputs(
        self,
        stream: str = "stdout",
        *,
        tasks: str = "",
        state: str | Sequence[str] = "",
        rank: int = 0,
        offset: int = 0,
        limit: int | None = None,
    ) -> Iterator[TaskOutput]:
        """Read the outputs of many tasks at once, by task number: of the latest attempt of each, as it is now.

        Args:
            tasks: '0-99,120' by number, '[1,3]' by HAL_ARRAY_INDEX; default: all.
            state: only of tasks in one of these states.
            offset: where to begin in each; negative: so many bytes before its end.
            limit: bytes of each; None: all.
        Raises:
            NotFoundError: no such job or task, or its outputs were removed.
        """
        states = state if isinstance(state, str) else ",".join(state)
        return self.client.items_of(
            task_outputs(
                self.id,
                stream=stream,
                tasks=tasks,
                states=states,
                rank=rank,
                offset=offset,
                limit=limit,
                reconnect_s=self.client.connections.reconnect_s,
                clock=time.monotonic,
            )
        )

    def log_bytes(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
        tail_bytes: int | None = None,
    ) -> Iterator[bytes]:
        """Read its output as raw pieces; as `logs`.

        Args:
            follow: give pieces as they are written, until the task has ended, over retries.
            tail_bytes: begin so many bytes before the present end.
        """
        follower = self.follower(stream, task=task, rank=rank, attempt=attempt)
        return follower.pieces(follow=follow, tail_bytes=tail_bytes)

    def follow(self, stream: str = "stdout", *, task: int = 0, rank: int = 0) -> Iterator[bytes]:
        """Read its output as it is written, until the task has ended, over retries."""
        return self.log_bytes(stream, task=task, rank=rank, follow=True)

    def follower(
        self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None
    ) -> LogFollower:
        """Make a reader of one of its outputs that counts how much of it was not kept."""
        return LogFollower(self.client.connections, self.id, stream=stream, task=task, rank=rank, attempt=attempt)

    def collected(self) -> list[CollectedInfo]:
        """List what was collected of it, by task, attempt and rank."""
        from hal.client.rest import file_calls

        return list(self.client.call(file_calls.collected(self.id)))

    def fetch(
        self, to: str | os.PathLike[str] = ".", *, tasks: Iterable[int] | None = None, force: bool = False
    ) -> list[Path]:
        """Fetch the files that were collected of the latest attempt of each task; returns their paths.

        Args:
            to: directory; those of an array are in `TO/TASK`, those of a gang in `rank-RANK` below.
            tasks: only of these tasks, by number.
            force: replace files that are there.
        Raises:
            ConflictError: a file is there already; those before it were created.
            NotFoundError: no such job, or what was collected of it was removed.
        """
        return [one.path for one in self.fetching(to, tasks=tasks, force=force)]

    def fetching(
        self, to: str | os.PathLike[str] = ".", *, tasks: Iterable[int] | None = None, force: bool = False
    ) -> Iterator[Fetched]:
        """As `fetch`; give each file when it is there."""
        from hal.client.flows.shipping import fetched, latest

        info = self.refresh()
        wanted = latest(self.collected(), None if tasks is None else frozenset(tasks))
        return self.client.items_of(fetched(self.id, wanted, Path(to), tasks=info.tasks, nodes=info.nodes, force=force))

    def log_part(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, offset: int = 0) -> LogPart:
        """Read the output file of its latest attempt from `offset` on, and its size."""
        return self.client.call(calls.log(self.id, task=task, rank=rank, stream=stream, offset=offset))

    def why(self) -> WhyInfo:
        """Ask why it has not started, and what would help."""
        return self.client.call(calls.why(self.id))

    def scores(self, limit: int = 10) -> ScoresInfo:
        """Ask which nodes that have room now are the best for its next task, and how each is scored.

        Raises:
            ConflictError: none of its tasks waits.
        """
        return self.client.call(calls.scores(self.id, limit))

    def tasks(
        self, state: str | Sequence[str] = "", *, tasks: str = "", limit: int | None = None
    ) -> Iterator[TaskInfo]:
        """List its tasks by number, page by page as they are consumed.

        Args:
            state: only those in one of these states.
            tasks: '0-99,120' by number, '[1,3]' by HAL_ARRAY_INDEX; default: all.
        """
        states = state if isinstance(state, str) else ",".join(state)
        return self.client.paged(
            lambda size, cursor: calls.tasks(self.id, state=states, named=tasks, limit=size, cursor=cursor), limit
        )

    def task(self, number: int = 0) -> TaskInfo:
        """Read one task with all its attempts.

        Raises:
            NotFoundError: the job has no such task.
        """
        return self.client.call(calls.task(self.id, number))

    def cancel(self) -> None:
        """Cancel it, whatever its state.

        Raises:
            ConflictError: it has ended already.
        """
        _check(self.client.cancel(self.id))

    def hold(self) -> None:
        """Hold it, so that it does not start; running tasks continue."""
        _check(self.client.hold(self.id))

    def release(self) -> None:
        """Release it."""
        _check(self.client.release(self.id))

    def requeue(self) -> None:
        """Run it again, as a new attempt."""
        self._info = None
        _check(self.client.requeue(self.id))

    def update(self, *, dry_run: bool = False, **fields: Any) -> UpdatedInfo:
        """Change a job that has not ended: all of these fields, or none.

        Args:
            dry_run: change nothing; the answer has what would change, and whether the job would then start at once.
            fields: keywords of `submit` (cpus=, memory=, walltime=, after=, labels=, begin= …), and hold=. None takes
                out what is there; a resource that is not named stays.
        Raises:
            SpecError: no such field, or not such a value.
            ConflictError: the job is past the point where this can be changed.
            DeniedError: only operators do that.
        """
        from hal.client.patches import patch_fields

        answer = self.client.call(calls.update(self.id, patch_fields(fields), dry_run=dry_run))
        self._info = answer
        return answer


def _check(outcomes: Sequence[Outcome]) -> None:
    """Raise the error that an outcome names."""
    for outcome in outcomes:
        if not outcome.ok:
            raise error_of(outcome)
