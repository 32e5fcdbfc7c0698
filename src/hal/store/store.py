"""The Store: durable truth. One group is one transaction: rows, events and the commit id are written together or not
at all.

Synchronous. Calls that write (`take_leadership`, `commit`, `trim`,
`sweep`, `shrink`) come from one thread at a time. Calls that read may
come from any thread, use their own connections, and never wait for the writer. A group survives the death of every
process once `commit` has returned, and a power failure once it is flushed, which `commit` does by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection, bindparam, func, select

from hal.core.model import AttemptState, Event, TaskState
from hal.store import controllers, leadership, queries, removal, removed_tasks, schema, trimming
from hal.store.bulk import first_row, insert_rows
from hal.store.controllers import ControllerRow
from hal.store.database import Database
from hal.store.database_url import open_database
from hal.store.ended_attempts import EndedPage, EndFilter, read_ended
from hal.store.errors import StoreAbsent, StoreError, StoreMissing
from hal.store.job_links import JobLinks, read_links
from hal.store.leadership import Claim, Leader
from hal.store.mark import INSTANCE, StoreMark
from hal.store.migrate import FIRST_WITH_LEASE, HEAD, migrate, revision_of
from hal.store.notice_rows import read_notice, read_noticed
from hal.store.operation_rows import write
from hal.store.operations import (
    AttemptRow,
    Committed,
    ForgetRow,
    Group,
    InsertJobs,
    JobRow,
    Newest,
    NodeRow,
    NoticeRow,
    PeriodicRow,
    PeriodicRun,
    PolicyRow,
    PutJoining,
    PutMeta,
    ReaderRow,
    Removed,
    TaskRangeRow,
)
from hal.store.periodic_rows import read_last_runs, read_periodic, read_runs
from hal.store.readers import read_readers
from hal.store.replication import Replication
from hal.store.sqlite import MemoryDatabase
from hal.store.task_pages import Run, state_runs, task, tasks
from hal.store.views import (
    JobFilter,
    Loaded,
    OldAttempt,
    OldJob,
    Remembered,
    Removal,
    Retention,
    Swept,
    TaskRow,
    Trimmed,
)


class Store:
    """One open store, created by `Store.open`."""

    def __init__(self, database: Database, mark: StoreMark | None = None) -> None:
        self._database = database
        self._mark = mark
        self._newest = 0
        """Number of the newest group that was committed here."""

    @classmethod
    def open(
        cls,
        where: str | Path | MemoryDatabase,
        *,
        create: bool = True,
        max_bytes: int | None = None,
        mark: StoreMark | None = None,
    ) -> Store:
        """Open a store and migrate its tables to this HAL's schema.

        Args:
            where: a path, `sqlite:////path/to/file`, `sqlite://` (in memory, gone when closed), a MemoryDatabase, or
                `postgresql://USER@HOST/DATABASE`.
            create: create the store if it does not exist.
            max_bytes: the file never grows beyond this; a commit that needs more raises `StoreFull`.
            mark: what is remembered about the store; kept up to date.
        Raises:
            StoreLost: it is not the store that the mark remembers, or an older state of it.
            StoreError: not a store, not accessible, or written by a newer HAL; nothing was changed.
        """
        used = mark is not None and bool(mark.seen.instance)
        try:
            database = open_database(where, create=create and not used, max_bytes=max_bytes)
        except StoreAbsent as error:
            raise (mark.missing_store_error(str(where)) if used and mark is not None else error) from None
        try:
            # Most stores are current: check without waiting for the write lock of another process.
            with database.reading("opening") as connection:
                found = revision_of(connection)
            if not found and used and mark is not None:
                raise mark.missing_store_error(database.location)
            if not found and not create:
                raise StoreMissing(f"there is no store in {database.location}", hint="`hal up` creates one")
            if found != HEAD:
                with database.writing("creating the tables") as connection:
                    database.lock_schema(connection)
                    found = revision_of(connection)
                    if FIRST_WITH_LEASE <= found < HEAD:
                        leadership.end_leadership(connection, database)
                    migrate(connection)
                if isinstance(where, MemoryDatabase):
                    where.keep_as_empty()
            if mark is not None:
                with database.reading("reading its identity") as connection:
                    instance = queries.read_meta(connection, INSTANCE) or ""
                    newest = (first_row(connection, _NEWEST_COMMIT) or (0,))[0]
                mark.check(database.location, instance, newest, flushes=not database.leased)
                mark.remember(instance, newest)
        except StoreError:
            database.close()
            raise
        return cls(database, mark)

    def close(self) -> None:
        """Close; committed data stays, and another process may lead."""
        self._database.close()

    # ── leading and writing ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def location(self) -> str:
        """Its name in messages; contains no password."""
        return self._database.location

    @property
    def leased(self) -> bool:
        """True: the leader must `renew`, and may act only while its lease is valid. False: a lock of the host keeps
        others out."""
        return self._database.leased

    def take_leadership(self, claim: Claim | str, now_ms: int, *, own: int = 0, past: int = 0) -> int:
        """Become leader; commits of every former leader fail from now on.

        Args:
            claim: who becomes leader; a text is its name for people.
            own: the epoch that this process holds now, to be followed by another.
            past: the new epoch must be greater than this one.
        Returns: the new epoch, greater than every former one.
        Raises:
            StoreBusy: another process holds this store; the message names it.
            StaleEpoch: there has been another leader since `own`.
        """
        claim = Claim(claim) if isinstance(claim, str) else claim
        self._database.lock(claim.holder[: leadership.MAX_HOLDER_BYTES])
        with self._database.writing("taking leadership") as connection:
            epoch = leadership.take_leadership(connection, self._database, claim, now_ms, own, past)
        self._database.flush()
        return epoch

    def renew(self, epoch: int) -> None:
        """Extend the lease of that epoch to `LEASE_MS` from now. Any thread; never waits for the writer.

        Raises:
            StaleEpoch: another controller has become leader.
            StoreError: it could not be renewed now.
        """
        with self._database.renewing("renewing the lease") as connection:
            leadership.renew_lease(connection, self._database, epoch)

    def resign(self, epoch: int) -> None:
        """End the lease, so that a follower need not wait for it to expire. Nothing may be written afterwards.

        Raises: as `renew`.
        """
        with self._database.renewing("giving up the lease") as connection:
            leadership.renew_lease(connection, self._database, epoch, 0)

    def leader(self) -> Leader:
        """Read who leads, judged by the database's clock."""
        with self._database.reading("asking who leads") as connection:
            return leadership.read_leader(connection, self._database)

    # ── the controllers that share it ─────────────────────────────────────────────────────────────────────────────

    def announce(self, row: ControllerRow) -> None:
        """Record that a controller is alive; outside any group, because followers do it too. Any thread.

        Raises:
            StoreError: it could not be written now.
        """
        with self._database.renewing("announcing this controller") as connection:
            controllers.announce(connection, self._database, row)

    def forget_controller(self, controller: str) -> None:
        """Remove a controller that has stopped in good order."""
        with self._database.renewing("recording that this controller stops") as connection:
            controllers.forget_controller(connection, controller)

    def controllers(self) -> list[ControllerRow]:
        """List the controllers that have announced themselves recently, by id; at most `controllers.MAX_SHOWN`."""
        with self._database.reading("listing controllers") as connection:
            return controllers.read_controllers(connection, self._database)

    def replication(self) -> Replication:
        """Read which standbys copy this database."""
        with self._database.reading("asking about replication") as connection:
            return self._database.replication(connection)

    def claim_fact(self, key: str, value: str) -> str:
        """Store a fact that is set only once; returns the stored value, which is `value` if there was none. Any
        thread.

        Raises:
            StoreError: it could not be written now.
        """
        with self._database.renewing(f"claiming '{key}'") as connection:
            return controllers.claim_fact(connection, key, value)

    def commit(self, group: Group, *, epoch: int, flush: bool = True) -> Committed:
        """Write a group as a whole. A group whose commit id is already durable is not written again.

        Args:
            flush: False leaves the flush to a later call of `flush`; until then a power failure may lose the group.
        Raises:
            FlushFailed: the group is written, but the disk refused to flush it: restart from what is there.
            StaleEpoch: another controller has become leader: nothing was written; step down.
            CommitUnknown: it is unknown whether the group is durable: look it up with `commit_known`.
            StoreError: any other: nothing was written.
        """
        database = self._database
        with database.writing(f"committing group {group.commit_id}") as connection:
            leadership.check_epoch(connection, epoch)
            committed = _committed(connection, group.commit_id) or _write_group(connection, group)
        if self._mark is not None:
            self._note(self._mark, group, committed)
        if flush:
            self.flush()
        return committed

    def _note(self, mark: StoreMark, group: Group, committed: Committed) -> None:
        instance, last_job = "", 0
        for operation in group.operations:
            if isinstance(operation, InsertJobs):
                last_job = max(last_job, *(row.id for row in operation.rows))
            elif isinstance(operation, PutMeta):
                instance = operation.values.get(INSTANCE) or instance
        self._newest = committed.number
        mark.record_commit(committed.number, instance=instance, last_job=last_job)

    def flush(self) -> None:
        """Make what was committed before this call survive a power failure. Any thread.

        Raises:
            FlushFailed: see `commit`.
        """
        newest = self._newest
        self._database.flush()
        if self._mark is not None and newest:
            self._mark.record_flush(newest)

    def commit_known(self, commit_id: str) -> bool:
        """Look up whether that group is durable. True is final; False is final once the commit has returned or
        failed."""
        with self._database.reading("looking up a commit") as connection:
            return _committed(connection, commit_id) is not None

    def size_bytes(self) -> int:
        """What the database takes of the disk."""
        with self._database.reading("reading its size") as connection:
            return self._database.size_bytes(connection)

    def trim(self, now_ms: int, retention: Retention, *, epoch: int, keys_before_ms: int | None = None) -> Trimmed:
        """Remove what retention does not keep beside jobs, oldest first, at most `trimming.TRIMMED_AT_ONCE` of each
        kind.

        Args:
            keys_before_ms: remove idempotency keys written before this; None: derived from `now_ms` and retention.

        The newest commit is always kept, so sequence numbers continue even when no event is left.
        """
        before_ms = now_ms - retention.idempotency_ms if keys_before_ms is None else keys_before_ms
        with self._database.writing("trimming") as connection:
            leadership.check_epoch(connection, epoch)
            return trimming.trim(connection, now_ms, before_ms, retention)

    def sweep(self, now_ms: int, retention: Retention, *, epoch: int) -> Swept:
        """Delete rows of jobs that are marked as removed (`MarkRemoved`), at most `removal.SWEPT_AT_ONCE`; not those
        whose attempts a registered reader has not read.

        Between groups: what is marked is of no use to anybody, so a crash in between loses nothing.

        Raises: as `commit`.
        """
        with self._database.writing("deleting removed jobs") as connection:
            leadership.check_epoch(connection, epoch)
            return removal.sweep(connection, now_ms, retention)

    def delete_attempts(self, attempts: Sequence[OldAttempt], *, epoch: int) -> bool:
        """Delete attempts of `old_attempts`, at most `removal.SWEPT_AT_ONCE`, of gangs in several calls. Raises: as
        `commit`.

        Returns: whether there is more to delete; call again.
        """
        with self._database.writing("deleting old attempts") as connection:
            leadership.check_epoch(connection, epoch)
            return removal.delete_attempts(connection, attempts)

    def going_attempts(self, now_ms: int, retention: Retention) -> list[OldAttempt] | None:
        """Read attempts of removed tasks of jobs that stay, at most `removed_tasks.ATTEMPTS_AT_ONCE`; not those that a
        registered reader has not read. None: there are no more."""
        with self._database.reading("looking for removed tasks") as connection:
            return removed_tasks.read_going(connection, now_ms, retention)

    def delete_going(self, attempts: Sequence[OldAttempt], *, epoch: int) -> bool:
        """Delete attempts of `going_attempts`, of gangs in several calls. Raises: as `commit`.

        Returns: whether there is more to delete; call again.
        """
        with self._database.writing("deleting removed tasks") as connection:
            leadership.check_epoch(connection, epoch)
            return removed_tasks.delete_going(connection, attempts)

    def shrink(self, *, epoch: int) -> int:
        """Return some unused space of the store's file to the file system; returns how many pages, 0: there is not
        enough to be worth it, or the server does this by itself. Raises: as `commit`."""
        with self._database.writing("returning unused space") as connection:
            leadership.check_epoch(connection, epoch)
            return self._database.shrink(connection)

    # ── what retention looks at ───────────────────────────────────────────────────────────────────────────────────

    def ended_queues(self) -> list[str]:
        """List the queues of which ended jobs are kept."""
        with self._database.reading("listing queues") as connection:
            return removal.read_queues(connection)

    def weigh_ended(self, queue: str, below: Removed) -> tuple[int, int]:
        """Count ended jobs of a queue, and their tasks, of which less than that was removed."""
        with self._database.reading("counting ended jobs") as connection:
            return removal.weigh(connection, queue, below)

    def needed_since(self, now_ms: int, retention: Retention) -> int:
        """Compute from which end on jobs must stay, as a registered reader has not read their attempts."""
        with self._database.reading("asking what readers need") as connection:
            return removal.needed_since(connection, now_ms, retention)

    def oldest_ended(self, queue: str, below: Removed, *, after: tuple[int, int] = (-1, 0), limit: int) -> list[OldJob]:
        """Read the jobs of a queue that ended first and of which less than that was removed.

        Args:
            after: instant of the end, and id, of the last job of the previous page.
        """
        with self._database.reading("looking for old jobs") as connection:
            return removal.read_oldest(connection, queue, below, after, limit)

    def old_attempts(
        self, now_ms: int, retention: Retention, after: tuple[int, int]
    ) -> tuple[list[OldAttempt], tuple[int, int] | None]:
        """Read ended attempts beyond the newest that are kept of each task, live or ended, at most
        `removal.SWEPT_AT_ONCE`; not those that a registered reader has not read.

        Args:
            after: job and task at which to continue; at first (0, 0).
        Returns: those found, and where to continue when they are deleted; None: there are no more.
        """
        with self._database.reading("looking for old attempts") as connection:
            return removal.read_old_attempts(connection, now_ms, retention, after, removal.SWEPT_AT_ONCE)

    def forgets_for(self, jobs: Sequence[int], *, whole: bool, most: int | None = None) -> list[ForgetRow]:
        """Compute what nodes must delete of these ended jobs.

        Args:
            whole: everything, as they never run again; False: their outputs so far. Outputs of a job in more than
                `removal.MAX_FORGETS_A_JOB` pieces are left until the whole job goes.
            most: with `whole`, of each job; None: no matter how much.
        """
        with self._database.reading("looking for outputs of old jobs") as connection:
            return removal.read_forgets(connection, jobs, whole, most)

    def forgets_left(self) -> list[int]:
        """Read the removed jobs of which nodes are still to be named (`EACH_NODE`)."""
        with self._database.reading("reading what is to be named to nodes") as connection:
            return removal.read_forgets_left(connection)

    def forgets(self, node: str, *, limit: int) -> list[ForgetRow]:
        """Read what that node must still delete, oldest job first."""
        with self._database.reading("reading what a node must delete") as connection:
            return removal.read_node_forgets(connection, node, limit)

    def forget_counts(self) -> dict[str, int]:
        """Count what nodes must still delete, by node."""
        with self._database.reading("counting what nodes must delete") as connection:
            return removal.count_forgets(connection)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, *, in_columns: bool = False) -> Loaded:
        """Load all live jobs and nodes, as of the newest commit.

        Args:
            in_columns: return jobs that are unchanged since submission as `Loaded.pending_columns`: a tenth of the time
                and memory.
        """
        with self._database.reading("loading") as connection:
            loaded = queries.load(connection, in_columns=in_columns)
        if self._mark is not None and self._mark.seen.last_job > loaded.last_job_id:
            return replace(loaded, last_job_id=self._mark.seen.last_job)
        return loaded

    def job(self, job_id: int) -> JobRow | None:
        """Read one job, ended or not."""
        with self._database.reading("reading a job") as connection:
            return queries.read_job(connection, job_id)

    def dependants(self, job_id: int, user: str, *, most: int) -> list[int]:
        """Read which jobs of a user name a job as their dependency, ended ones too; see `queries.read_dependants`."""
        with self._database.reading("reading what depends on a job") as connection:
            return queries.read_dependants(connection, job_id, user, most)

    def job_links(self, user: str, *, after: int, until: int, limit: int) -> list[JobLinks]:
        """Read which jobs of a user name which others; see `job_links.read_links`."""
        with self._database.reading("reading what depends on what") as connection:
            return read_links(connection, user, after, until, limit)

    def live_bundles(self) -> set[str]:
        """Read the names of the bundles that live jobs ship; see `queries.read_live_bundles`."""
        with self._database.reading("reading what live jobs ship") as connection:
            return queries.read_live_bundles(connection)

    def removal(self, job_id: int) -> Removal | None:
        """Read when outputs of a job were removed last; attempts that began later have theirs."""
        with self._database.reading("asking what was removed of a job") as connection:
            return removal.read_removal(connection, job_id)

    def jobs(
        self,
        wanted: JobFilter | None = None,
        *,
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[JobRow]:
        """Read a page of jobs by id.

        Args:
            after: id of the last job of the previous page.
        """
        with self._database.reading("listing jobs") as connection:
            return queries.read_jobs(connection, wanted or JobFilter(), after, limit, newest_first)

    def counts(self) -> dict[TaskState, int]:
        """Count jobs by state; a state without a job is missing."""
        with self._database.reading("counting jobs") as connection:
            return queries.count_jobs(connection)

    def tasks(
        self, job_id: int, states: Iterable[TaskState] = (), *, after: int | None = None, limit: int = 100
    ) -> list[TaskRow]:
        """Compute a page of a job's tasks in ascending order.

        Args:
            after: number of the last task of the previous page.
        """
        with self._database.reading("listing tasks") as connection:
            return tasks(connection, job_id, tuple(states), after, limit)

    def state_runs(self, job_id: int, start: int, end: int, most_attempts: int) -> tuple[list[Run], int]:
        """Compute in which state tasks are, as runs; see `task_pages.state_runs`."""
        with self._database.reading("reading the states of tasks") as connection:
            return state_runs(connection, job_id, start, end, most_attempts)

    def task(self, job_id: int, number: int) -> TaskRow | None:
        """Read one task; None when there is none with that number."""
        with self._database.reading("reading a task") as connection:
            return task(connection, job_id, number)

    def ranges(self, job_id: int) -> list[TaskRangeRow]:
        """Read all ranges of a job, ended or not, in order."""
        with self._database.reading("listing ranges") as connection:
            return queries.read_ranges(connection, job_id)

    def succeeded(self, job_id: int) -> tuple[tuple[int, int], ...]:
        """Read which tasks of a job succeeded, as ranges [first, end)."""
        with self._database.reading("reading which tasks succeeded") as connection:
            return queries.read_succeeded(connection, job_id)

    def tasks_removed(self, job_id: int) -> list[tuple[int, int]]:
        """Read which tasks of a job were removed, as ranges [first, end)."""
        with self._database.reading("reading which tasks were removed") as connection:
            return removed_tasks.read_removed(connection, job_id)

    def task_runs(self, job_id: int, first: int, end: int) -> dict[TaskState, list[tuple[int, int]]] | None:
        """Read in which state each task of an ended job ended; see `removed_tasks.read_task_runs`."""
        with self._database.reading("reading how tasks ended") as connection:
            return removed_tasks.read_task_runs(connection, job_id, first, end)

    def attempts(
        self,
        job_id: int,
        *,
        task: int | None = None,
        states: Iterable[AttemptState] = (),
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[AttemptRow]:
        """Read a page of a job's attempts by (task, attempt), including ended ones.

        Args:
            after: (task, attempt) of the last one of the previous page.
        """
        with self._database.reading("listing attempts") as connection:
            return queries.read_attempts(connection, job_id, task, states, after, limit)

    def ended(
        self,
        after: int = 0,
        wanted: EndFilter | None = None,
        *,
        last: int,
        limit: int = 1_000,
        newest: bool = False,
        asked: bool = False,
    ) -> EndedPage:
        """Read the first ends of attempts behind a sequence number, or the last ones, in commit order.

        Args:
            last: as if none were behind this number.
            newest: the last ones.
            asked: also what their jobs asked for.
        """
        with self._database.reading("reading ended attempts") as connection:
            return read_ended(connection, wanted or EndFilter(), after, last, limit, newest=newest, asked=asked)

    def last_end(self) -> int:
        """Read the sequence number of the newest end of an attempt; 0 before the first."""
        with self._database.reading("reading ended attempts") as connection:
            return (first_row(connection, _NEWEST_COMMIT) or (0, 0, 0, 0))[3]

    def events(self, after_seq: int = 0, *, limit: int = 1_000, job: int | None = None) -> list[Event]:
        """Read the feed after a sequence number, oldest first; with `job`, only what is about that job."""
        with self._database.reading("reading events") as connection:
            return queries.read_events(connection, after_seq, limit, job)

    def first_seq(self) -> int:
        """Read the sequence number of the oldest event kept; 0 when there is none."""
        with self._database.reading("reading events") as connection:
            return queries.read_first_seq(connection)

    def last_seq(self) -> int:
        """Read the sequence number of the newest event; 0 before the first."""
        with self._database.reading("reading events") as connection:
            return queries.read_newest(connection)[1]

    def nodes(self) -> list[NodeRow]:
        """Read all nodes as last written."""
        with self._database.reading("listing nodes") as connection:
            return queries.read_nodes(connection)

    def policy(self, version: int | None = None) -> PolicyRow | None:
        """Read that version of the policy, or the newest; None if it is not kept or never existed."""
        with self._database.reading("reading a policy") as connection:
            return queries.read_policy(connection, version)

    def policies(self, *, before: int | None = None, limit: int = 100) -> list[PolicyRow]:
        """Read a page of versions of the policy, newest first, without their documents.

        Args:
            before: the last version of the previous page.
        """
        with self._database.reading("listing policies") as connection:
            return queries.read_policies(connection, before, limit)

    def joining(self) -> PutJoining:
        """Read all join tokens and certificates of nodes."""
        with self._database.reading("reading join tokens") as connection:
            return queries.read_join_credentials(connection)

    def readers(self) -> list[ReaderRow]:
        """Read the registered readers of the feeds, by name."""
        with self._database.reading("listing readers") as connection:
            return read_readers(connection)

    def notice(self, job: int) -> NoticeRow | None:
        """Read what was told of a job; None: it notifies nobody, or was removed."""
        with self._database.reading("reading what was told of a job") as connection:
            return read_notice(connection, job)

    def noticed(self, after: int = 0, *, only_open: bool) -> list[int]:
        """Read a page of the jobs that notify somebody, ascending.

        Args:
            after: the last job of the previous page.
            only_open: those of which there is more to tell.
        """
        with self._database.reading("listing jobs that notify somebody") as connection:
            return read_noticed(connection, after, only_open=only_open)

    def periodic(self) -> list[PeriodicRow]:
        """Read all periodic jobs, by id."""
        with self._database.reading("listing periodic jobs") as connection:
            return read_periodic(connection)

    def periodic_runs(self, periodic: int, *, before: int | None = None, limit: int = 100) -> list[PeriodicRun]:
        """Read a page of the history of a periodic job, newest first.

        Args:
            before: number of the last entry of the previous page.
        """
        with self._database.reading("reading the history of a periodic job") as connection:
            return read_runs(connection, periodic, before, limit)

    def last_runs(self, periodic: Sequence[int]) -> dict[int, PeriodicRun]:
        """Read the newest entry of the history of each of these, by id; those without one are missing."""
        with self._database.reading("listing periodic jobs") as connection:
            return read_last_runs(connection, periodic)

    def idempotent(self, key: str) -> Remembered | None:
        """Read the response to the request with that idempotency key, while it is kept."""
        with self._database.reading("looking up an idempotency key") as connection:
            return queries.read_response(connection, key)

    def meta(self, key: str) -> str | None:
        """Read a small fact by name."""
        with self._database.reading("reading meta") as connection:
            return queries.read_meta(connection, key)

    def facts(self, prefix: str) -> dict[str, str]:
        """Read all small facts whose names begin with `prefix`."""
        m = schema.meta.c
        with self._database.reading("reading meta") as connection:
            query = select(m.key, m.value).where(m.key.startswith(prefix, autoescape=True))
            return {row.key: row.value for row in connection.execute(query)}


_C: Final = schema.commits.c
_COMMITTED: Final = select(_C.id, _C.first_seq, _C.last_seq, _C.number, _C.last_end).where(_C.id == bindparam("the_id"))
_NEWEST_COMMIT: Final = select(_C.number, _C.last_seq, _C.at_ms, _C.last_end).where(
    _C.number == select(func.max(_C.number)).scalar_subquery()
)


def _committed(connection: Connection, commit_id: str) -> Committed | None:
    row = first_row(connection, _COMMITTED, {"the_id": commit_id})
    return None if row is None else Committed(*row)


def _write_group(connection: Connection, group: Group) -> Committed:
    number, before, at_ms, end = first_row(connection, _NEWEST_COMMIT) or (0, 0, 0, 0)
    at_ms = max(at_ms, group.now_ms)
    newest = Newest(before, end)
    for operation in group.operations:
        newest = write(connection, operation, at_ms, newest)
    row = {
        "number": number + 1,
        "id": group.commit_id,
        "at_ms": at_ms,
        "first_seq": before + 1,
        "last_seq": newest.event,
        "last_end": newest.end,
    }
    insert_rows(connection, schema.commits, [row])
    return Committed(group.commit_id, before + 1, newest.event, number + 1, newest.end)
