"""What must hold of every run: HAL's rows and feed against the plan, and against what the jobs themselves wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from hal.client.rest.views import EventInfo
from hal.core.model import AttemptState, DependencyKind, EventKind, StepId, TaskState
from hal.store.operations import AttemptRow
from tests.chaos.diary import FAULT, Line
from tests.chaos.records import Records
from tests.chaos.ruin import Kill
from tests.chaos.workload import NODE_CPU_MILLI, Wanted

KILLED: Final = 128 + 9
LOSS_SLACK_MS: Final = 3_000
"""A start may be given to a helper that is dead already, for as long as its keeper does not know or is dead too."""

_NO_PROCESS_EVER = frozenset({AttemptState.REFUSED})
_MAY_HAVE_NOT_BEGUN = frozenset(
    {AttemptState.LOST, AttemptState.CANCELLED, AttemptState.TIMED_OUT, AttemptState.PREEMPTED}
)


class Fault(AssertionError):
    """Something that must hold does not; `job` is the one concerned, if it is one."""

    def __init__(self, job: int | None, message: str) -> None:
        super().__init__(message)
        self.job = job


class Evidence(NamedTuple):
    """All that is known of a run."""

    wanted: dict[int, Wanted]
    """By job id; those whose submission was answered."""
    cancelled: frozenset[int]
    lines: Sequence[Line]
    kills: Sequence[Kill]
    records: Records
    followed: Sequence[EventInfo]

    def of(self, job: int, word: str) -> dict[tuple[int, int], dict[int, Line]]:
        """The job's lines of that kind, by task and attempt, then by rank."""
        found: dict[tuple[int, int], dict[int, Line]] = {}
        for line in self.lines:
            if line.word == word and line.step.job == job:
                found.setdefault((line.step.task, line.step.attempt), {})[line.step.rank] = line
        return found


def judge(seen: Evidence) -> None:
    """All of it.

    Raises:
        Fault: the first thing that does not hold.
    """
    no_submission_is_lost_or_doubled(seen)
    nothing_runs_twice_at_once(seen.lines)
    no_node_is_oversubscribed(seen)
    for job in seen.wanted:
        _attempts_agree_with_the_diary(seen, job)
        _tasks_end_as_they_must(seen, job)
        _dependencies_are_kept(seen, job)
    _the_feed_agrees_with_the_rows(seen)
    _who_followed_saw_the_feed(seen)


def no_submission_is_lost_or_doubled(seen: Evidence) -> None:
    """Each job that was answered is there, and no other."""
    rows = {job.id: job.name for job in seen.records.jobs.values()}
    for job, wanted in seen.wanted.items():
        _hold(
            rows.get(job) == wanted.name, job, f"job {job} '{wanted.name}' was answered; the store has {rows.get(job)}"
        )
    for job in rows.keys() - seen.wanted.keys():
        raise Fault(job, f"job {job} '{rows[job]}' was never answered, or submitted twice")
    for line in seen.lines:
        _hold(line.step.job in rows, line.step.job, f"{line}: of a job that the store does not know")


def nothing_runs_twice_at_once(lines: Iterable[Line]) -> None:
    """No step began twice, no attempt met another one of its task alive, and attempts of a task only go up."""
    begun: dict[StepId, Line] = {}
    latest: dict[tuple[int, int], Line] = {}
    for line in lines:
        step = line.step
        _hold(line.word != "TWICE", step.job, f"{line}: it found processes of {line.detail} alive")
        if line.word == "START":
            _hold(step not in begun, step.job, f"step {step} ran twice: {begun.get(step)} and {line}")
            begun[step] = line
            last = latest.get((step.job, step.task), line)
            _hold(last.step.attempt <= step.attempt, step.job, f"an older attempt began later: {last}, then {line}")
            latest[(step.job, step.task)] = line


def no_node_is_oversubscribed(seen: Evidence) -> None:
    """Between START and END a step certainly holds its cores: together never more than the node has."""
    ended = {line.step for line in seen.lines if line.word == "END"}
    used: Counter[str] = Counter()
    for line in seen.lines:
        if line.step in ended and line.word in ("START", "END"):
            cpu = seen.records.jobs[line.step.job].spec.request["cpu"]
            used[line.node] += cpu if line.word == "START" else -cpu
            _hold(used[line.node] <= NODE_CPU_MILLI, line.step.job, f"{line}: {used[line.node]} millicores are in use")


# ── rows and diary ────────────────────────────────────────────────────────────────────────────────────────────────


def _attempts_agree_with_the_diary(seen: Evidence, job: int) -> None:
    begun, ended = seen.of(job, "START"), seen.of(job, "END")
    rows = {(row.task, row.attempt): row for rows in seen.records.attempts.values() for row in rows if row.job == job}
    for key in begun.keys() - rows.keys():
        raise Fault(job, f"attempt {key} of job {job} ran, and HAL has no record of it")
    killed = {kill.step for kill in seen.kills if kill.step is not None}
    for key, row in rows.items():
        what = f"{job}.{row.task}.{row.attempt}, {row.state.value} (code {row.exit_code}, {row.cause}, {row.message})"
        starts, ends = begun.get(key, {}), ended.get(key, {})
        ranks = set(range(len(row.nodes)))
        _hold(row.state.ended, job, f"attempt {what} has no end")
        _hold(row.ended_ms is not None, job, f"attempt {what} has no time of its end")
        for rank, line in starts.items():
            _hold(row.nodes[rank] == line.node, job, f"attempt {what}: on {row.nodes}, but {line}")
        if row.state in _NO_PROCESS_EVER:
            _hold(not starts, job, f"attempt {what} ran: {starts}")
        elif row.state not in _MAY_HAVE_NOT_BEGUN:
            began_all = ranks <= starts.keys() or (len(ranks) > 1 and row.state is not AttemptState.SUCCEEDED)
            _hold(began_all, job, f"attempt {what} began on ranks {sorted(starts)} only")
            _hold(row.started_ms is not None, job, f"attempt {what} has no time of its start")
        if row.state is AttemptState.SUCCEEDED:
            codes = {rank: line.detail for rank, line in ends.items()}
            _hold(codes == dict.fromkeys(ranks, "0"), job, f"attempt {what} wrote these ends: {codes}")
        if row.state is AttemptState.FAILED:
            by_us = any(StepId(job, row.task, row.attempt, rank) in killed for rank in ranks)
            told = any(line.detail == str(FAULT) for line in ends.values())
            as_told = told and row.exit_code == FAULT
            as_killed = by_us and (row.exit_code, row.signal) == (KILLED, 9)
            _hold(as_told or as_killed, job, f"attempt {what} failed, and nobody made it fail; its ends: {ends}")
        if row.state is AttemptState.LOST:
            _hold(_may_be_lost(row, seen.kills), job, f"attempt {what} was lost, and no helper of its nodes was killed")


def _may_be_lost(row: AttemptRow, kills: Iterable[Kill]) -> bool:
    helpers = {f"{process}-{node}" for process in ("helper", "helpers") for node in row.nodes}
    return any(
        kill.victim in helpers and row.allocated_ms - LOSS_SLACK_MS <= kill.wall_ms <= (row.ended_ms or kill.wall_ms)
        for kill in kills
    )


# ── what must become of each task ─────────────────────────────────────────────────────────────────────────────────


def _tasks_end_as_they_must(seen: Evidence, job: int) -> None:
    wanted, row = seen.wanted[job], seen.records.jobs[job]
    tasks = seen.records.tasks[job]
    count = wanted.spec.array.count if wanted.spec.array else 1
    _hold([task.task for task in tasks] == list(range(count)), job, f"job {job} has the tasks {tasks}")
    never = _never(seen, wanted)
    for task in tasks:
        attempts = seen.records.attempts.get((job, task.task), [])
        if never:
            _hold(not attempts, job, f"{job}.{task.task} ran, though {never}")
            _hold(task.state is TaskState.CANCELLED, job, f"{job}.{task.task} is {task.state.value}, though {never}")
        else:
            _follows(seen, job, task.task, task.state, attempts)
    states = Counter(task.state for task in tasks)
    counted = {
        TaskState.SUCCEEDED: row.succeeded,
        TaskState.FAILED: row.failed,
        TaskState.TIMED_OUT: row.timed_out,
        TaskState.CANCELLED: row.cancelled,
    }
    _hold(states == Counter(counted), job, f"job {job} counts {counted}, its tasks say {states}")
    _hold(row.state.ended and row.end_ms is not None, job, f"job {job} is {row.state.value} at {row.end_ms}")
    _hold(len(states) > 1 or row.state in states, job, f"job {job} is {row.state.value}, its tasks {states}")


def _follows(seen: Evidence, job: int, task: int, state: TaskState, attempts: list[AttemptRow]) -> None:
    """The attempts of a task, one by one: each is the one that the rules ask for, and the last one decides."""
    wanted = seen.wanted[job]
    ended_by_person = job in seen.cancelled or wanted.endless
    retries = 0
    end: TaskState | None = None
    for number, row in enumerate(attempts, 1):
        what = f"{job}.{task}.{row.attempt}"
        _hold(row.attempt == number, job, f"attempts of {job}.{task} are numbered {[a.attempt for a in attempts]}")
        _hold(end is None, job, f"{what} ran although {job}.{task} was {end} after attempt {number - 1}")
        match row.state:
            case AttemptState.SUCCEEDED:
                _hold(number > wanted.fails, job, f"{what} succeeded, although it was told to fail")
                end = TaskState.SUCCEEDED
            case AttemptState.FAILED if retries < wanted.spec.retries.max:
                retries += 1
            case AttemptState.FAILED:
                end = TaskState.FAILED
            case AttemptState.TIMED_OUT:
                _hold(wanted.end is TaskState.TIMED_OUT, job, f"{what} has no time limit and was timed out")
                end = TaskState.TIMED_OUT
            case AttemptState.CANCELLED:
                _hold(ended_by_person, job, f"{what} was cancelled by nobody")
                end = TaskState.CANCELLED
            case AttemptState.PREEMPTED:
                _hold(wanted.spec.nodes > 1, job, f"{what} was preempted by nobody")
    if end is None and ended_by_person:
        end = TaskState.CANCELLED
    _hold(state is end, job, f"{job}.{task} is {state.value}; after its attempts it must be {end}")
    if wanted.spec.retries.max > 1:
        _hold(state is wanted.end, job, f"{job}.{task} is {state.value}, not {wanted.end.value}")


def _dependencies_are_kept(seen: Evidence, job: int) -> None:
    starts = [line for line in seen.lines if line.word == "START" and line.step.job == job]
    if not starts:
        return
    ids = {wanted.name: number for number, wanted in seen.wanted.items()}
    for dependency in seen.wanted[job].spec.dependencies:
        before = ids[dependency.job]
        late = [line for line in seen.lines if line.step.job == before and line.position > starts[0].position]
        _hold(not late, job, f"job {job} began with {starts[0]}; job {before}, which it waits for, went on: {late[:1]}")


def _never(seen: Evidence, wanted: Wanted) -> str:
    """Why it must never run, or ''."""
    ids = {other.name: number for number, other in seen.wanted.items()}
    for dependency in wanted.spec.dependencies:
        state = seen.records.jobs[ids[dependency.job]].state
        if dependency.kind is DependencyKind.AFTEROK and state is not TaskState.SUCCEEDED:
            return f"it waits for the success of {dependency.job}, which is {state.value}"
        if dependency.kind is DependencyKind.AFTERNOTOK and state is TaskState.SUCCEEDED:
            return f"it waits for {dependency.job} to fail, which succeeded"
    return ""


# ── the feed ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _the_feed_agrees_with_the_rows(seen: Evidence) -> None:
    """Without gaps; each attempt allocated once, started at most once, ended once, as its row says; each job ended."""
    events = seen.records.events
    _hold([event.sequence for event in events] == list(range(1, len(events) + 1)), None, "the feed has gaps")
    allocated: dict[str, Any] = {}
    started: set[str] = set()
    ended: dict[str, Any] = {}
    jobs_ended: dict[int, Any] = {}
    submitted: set[int] = set()
    for event in events:
        payload = event.payload
        match event.kind:
            case EventKind.JOBS_SUBMITTED:
                new = set(range(payload["first"], payload["last"] + 1))
                _hold(not new & submitted, None, f"submitted twice: {new & submitted}")
                submitted |= new
            case EventKind.ATTEMPTS_ALLOCATED:
                for item in payload["attempts"]:
                    _once(allocated, item["id"], item, "allocated")
            case EventKind.ATTEMPTS_STARTED:
                for name in payload["attempts"]:
                    _hold(name in allocated, _job_of(name), f"{name} was started before it was allocated")
                    _hold(name not in ended, _job_of(name), f"{name} was started after its end")
                    _hold(name not in started, _job_of(name), f"the feed says twice that {name} was started")
                    started.add(name)
            case EventKind.ATTEMPTS_ENDED:
                for item in payload["attempts"]:
                    _hold(item["id"] in allocated, _job_of(item["id"]), f"{item} ended before it was allocated")
                    _once(ended, item["id"], item, "ended")
            case EventKind.JOBS_ENDED:
                for job, state, code in payload["ended"]:
                    _hold(job not in jobs_ended, job, f"the feed says twice that job {job} has ended")
                    jobs_ended[job] = (state, code)
    rows = {f"{row.job}.{row.task}.{row.attempt}": row for rows in seen.records.attempts.values() for row in rows}
    _hold(submitted == set(seen.records.jobs), None, f"submitted: {submitted}, stored: {set(seen.records.jobs)}")
    _same(set(allocated), set(rows), "allocated")
    _same(set(ended), set(rows), "ended")
    _same(started, {name for name, row in rows.items() if row.started_ms is not None}, "started")
    for name, row in rows.items():
        _hold(tuple(allocated[name]["nodes"]) == row.nodes, row.job, f"{allocated[name]} in the feed, row {row}")
        told = (ended[name]["state"], ended[name]["exit_code"], ended[name]["cause"])
        _hold(told == (row.state.value, row.exit_code, row.cause), row.job, f"{ended[name]} in the feed, row {row}")
    for number, job in seen.records.jobs.items():
        told = jobs_ended.get(number)
        _hold(told == (job.state.value, job.exit_code), number, f"the feed says {told} of job {number}, its row {job}")


def _who_followed_saw_the_feed(seen: Evidence) -> None:
    """Each event once, in order, through all restarts of the controller."""
    mine = [(event.sequence, str(event.kind)) for event in seen.followed]
    feed = [(event.sequence, event.kind.value) for event in seen.records.events[: len(mine)]]
    _hold(mine == feed, None, f"who followed the feed saw other events: {set(mine) ^ set(feed)}")


def _once(found: dict[str, Any], name: str, item: Any, what: str) -> None:
    _hold(name not in found, _job_of(name), f"the feed says twice that {name} was {what}: {found.get(name)}, {item}")
    found[name] = item


def _same(feed: set[str], rows: set[str], what: str) -> None:
    for name in sorted(feed ^ rows):
        raise Fault(_job_of(name), f"{name} was {what}: only {'the feed' if name in feed else 'its row'} says so")


def _job_of(name: str) -> int:
    return int(name.partition(".")[0])


def _hold(holds: bool, job: int | None, message: str) -> None:
    if not holds:
        raise Fault(job, message)
