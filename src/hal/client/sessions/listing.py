"""Sessions as people see them: two jobs of one name, and what their broker says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hal.client.sessions.job_labels import BROKER, PART_LABEL, SESSION_LABEL, SHAPE_LABEL, SLOTS
from hal.core.model.errors import NotFoundError, UnreachableError

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo
    from hal.client.sync_client import Client
    from hal.runtime.session_file import SessionFile
    from hal.wire.frames.sessions import GroupNumbers, SessionNumbers


class ShapeInfo(Struct, frozen=True, kw_only=True):
    """The slots of one shape, while they have a job."""

    shape: str
    """'' of the session itself."""
    job: str
    running: int
    most: int


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session whose jobs have not ended."""

    name: str
    user: str
    queue: str
    broker: str
    """Id of the job; '' if it has ended."""
    state: str
    """Of the broker's job; `ending` if that has ended and the job of the slots has not."""
    slots: str
    """Id of the job of the slots of the session itself; '' if it has ended."""
    running: int
    """Slots that run now, of all shapes."""
    most: int
    """Slots at most."""
    submit_ms: int
    shapes: tuple[ShapeInfo, ...] = ()
    shards: int = 1
    """Brokers, which are the tasks of the broker's job."""
    brokers: int = 1
    """Of these, those that run."""


class ShardView(Struct, frozen=True, kw_only=True):
    """One broker of a session with several."""

    shard: int
    """Its number, and the task of the broker's job that it is."""
    answers: bool
    slots: int = 0
    busy: int = 0
    """Slots that have a task."""
    waiting: int = 0
    unanswered: int = 0
    done: int = 0


class SlotUse(Struct, frozen=True, kw_only=True):
    """What one slot did."""

    worker: str
    task: int
    """Of the job of the slots."""
    done: int
    """Tasks that it has reported."""
    held: int
    """Tasks that it has and has not reported."""
    use: float
    """Which part of its time its tasks took."""
    mean_us: int
    """How long a task took on average; 0: none is known."""
    since_s: int
    silent_s: float
    """For how long it has reported nothing although it has tasks."""
    running: str = ""
    """The function of the task that it runs."""
    tags: tuple[str, ...] = ()
    """Of that task."""
    shape: str = ""
    """Of the slot; '': that of the session itself."""


class TaskGroup(Struct, frozen=True, kw_only=True):
    """Tasks of one function, or with one tag."""

    name: str
    done: int
    failed: int
    retried: int
    """How often one of them failed and ran again."""
    busy_us: int
    """How long they took."""


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as its broker sees it."""

    session: SessionInfo
    uptime_s: float
    clients: int
    waiting: int
    """Tasks that no slot has."""
    unanswered: int
    done: int
    rate: float
    """Tasks a second, since it began."""
    within_ms: dict[str, int]
    """Tasks answered in less than so many milliseconds after they came, beyond the entry before."""
    slots: tuple[SlotUse, ...]
    late: tuple[str, ...]
    """Workers whose tasks go on much longer than others took."""
    ended: dict[str, int]
    """Tasks by how they ended: done, failed, lost, quarantined, cancelled, timed-out."""
    retried: int
    """How often a task failed that ran again."""
    lost_workers: int
    """How often a worker ended while it had tasks."""
    latency_ms: int
    """The sum of the latencies of all tasks."""
    seconds: tuple[int, ...]
    """Tasks reported in each of the last seconds, the present one last."""
    minutes: tuple[int, ...]
    """And minutes."""
    functions: tuple[TaskGroup, ...]
    """Those that took longest first."""
    tags: tuple[TaskGroup, ...]
    shards: tuple[ShardView, ...] = ()
    """Its brokers, if there are several; what is above is their sum."""


def sessions_of(jobs: Iterable[JobInfo]) -> list[SessionInfo]:
    """The sessions that these jobs are, by name."""
    parts: dict[tuple[str, str], dict[tuple[str, str], JobInfo]] = {}
    for job in jobs:
        name, part = job.labels.get(SESSION_LABEL, ""), job.labels.get(PART_LABEL, "")
        if name and part in (BROKER, SLOTS) and not job.ended:
            parts.setdefault((name, job.user), {})[part, job.labels.get(SHAPE_LABEL, "")] = job
    return [_info(*key, parts[key]) for key in sorted(parts)]


def _info(name: str, user: str, parts: dict[tuple[str, str], JobInfo]) -> SessionInfo:
    broker, slots = parts.get((BROKER, "")), parts.get((SLOTS, ""))
    one = broker or slots or next(iter(parts.values()))
    shapes = tuple(
        ShapeInfo(shape=shape, job=job.id, running=job.counts.get("running", 0), most=job.tasks)
        for (part, shape), job in sorted(parts.items())
        if part == SLOTS
    )
    return SessionInfo(
        name=name,
        user=user,
        queue=one.queue,
        broker=broker.id if broker else "",
        state=broker.state if broker else "ending",
        slots=slots.id if slots else "",
        running=sum(shape.running for shape in shapes),
        most=sum(shape.most for shape in shapes),
        submit_ms=one.submit_ms,
        shapes=shapes,
        shards=broker.tasks if broker else 1,
        brokers=broker.counts.get("running", 0) if broker else 0,
    )


def my_sessions(client: Client) -> list[SessionInfo]:
    """The sessions of this user."""
    from hal.client.rest import access_calls

    user = client.call(access_calls.who_am_i()).user
    return sessions_of(client.jobs(label=SESSION_LABEL, user=user))


def my_session(client: Client, name: str) -> SessionInfo:
    """A session of this user.

    Raises:
        NotFoundError: there is none.
    """
    from hal.client.rest import access_calls

    user = client.call(access_calls.who_am_i()).user
    found = sessions_of(client.jobs(label={SESSION_LABEL: name}, user=user))
    if not found:
        raise NotFoundError(f"there is no session '{name}'", hint="hal sessions lists them")
    return found[0]


def file_of(client: Client, session: SessionInfo) -> SessionFile:
    """The session's file, which its broker was given; of a broker on another machine, what its step has.

    Raises:
        NotFoundError: the session has no broker any more.
        HALError: it cannot be read.
    """
    from hal.runtime.session_file import read_session_file

    broker = client.job(session.broker) if session.broker else None
    spec = (broker.refresh().spec if broker is not None else None) or {}
    command = spec.get("command")
    if broker is None or not isinstance(command, Sequence) or "--session" not in command[:-1]:
        raise NotFoundError(f"session '{session.name}' has no broker", hint=f"hal session end {session.name}")
    path = Path(str(command[command.index("--session") + 1]))
    if not path.exists() and spec.get("secrets"):
        from hal.client.sessions.machines import file_in_step

        return file_in_step(client, broker, session.name, spec)
    return read_session_file(path)


def view_of(client: Client, session: SessionInfo) -> SessionView:
    """How it goes.

    Raises:
        UnreachableError: its broker does not answer here.
    """
    from hal.client.sessions.questions import ask_numbers, ask_shards

    file = file_of(client, session)
    if not file.shards:
        return _view(session, ask_numbers(file, slots=True))
    from hal.client.sessions.sums import sum_of

    shards = ask_shards(file, slots=True)
    answers = [one for one in shards if one is not None]
    if not answers:
        raise UnreachableError(f"no broker of session '{session.name}' answers", hint=f"hal show {session.broker}")
    return _view(session, sum_of(answers), [_shard(*one) for one in enumerate(shards)])


def _shard(number: int, found: SessionNumbers | None) -> ShardView:
    if found is None:
        return ShardView(shard=number, answers=False)
    return ShardView(
        shard=number,
        answers=True,
        slots=found.slots,
        busy=found.busy,
        waiting=found.waiting,
        unanswered=found.unanswered,
        done=found.done,
    )


def _view(session: SessionInfo, numbers: SessionNumbers, shards: Iterable[ShardView] = ()) -> SessionView:
    from hal.wire.frames.sessions import TaskStatus

    slots = tuple(
        SlotUse(
            worker=one.name,
            task=one.task,
            done=one.done,
            held=one.held,
            use=round(min(one.busy_us / max(one.since_ms * 1_000, 1), 1.0), 3),
            mean_us=one.busy_us // one.done if one.done else 0,
            since_s=one.since_ms // 1_000,
            silent_s=one.silent_ms / 1_000,
            running=one.running,
            tags=one.tags,
            shape=one.shape,
        )
        for one in sorted(numbers.each, key=lambda one: one.task)
    )
    return SessionView(
        session=session,
        uptime_s=numbers.uptime_ms / 1_000,
        clients=numbers.clients,
        waiting=numbers.waiting,
        unanswered=numbers.unanswered,
        done=numbers.done,
        rate=round(numbers.done * 1_000 / max(numbers.uptime_ms, 1), 1),
        within_ms={str(1 << step): tasks for step, tasks in enumerate(numbers.latencies) if tasks},
        slots=slots,
        late=late(slots),
        ended={status.name.lower().replace("_", "-"): numbers.ended[status] for status in TaskStatus},
        retried=numbers.retried,
        lost_workers=numbers.lost_workers,
        latency_ms=numbers.latency_ms,
        seconds=numbers.seconds,
        minutes=numbers.minutes,
        functions=_groups(numbers.functions),
        tags=_groups(numbers.tags),
        shards=tuple(shards),
    )


def _groups(numbers: Iterable[GroupNumbers]) -> tuple[TaskGroup, ...]:
    found = (
        TaskGroup(name=one.name, done=one.done, failed=one.failed, retried=one.retried, busy_us=one.busy_us)
        for one in numbers
    )
    return tuple(sorted(found, key=lambda one: -one.busy_us))


LATE: Final = 10
"""A worker is late when its task goes on so many times as long as tasks take on average."""
LATE_S: Final = 1.0
"""And for so long at least."""


def late(slots: Sequence[SlotUse]) -> tuple[str, ...]:
    """Of these, the workers that are late. Pure."""
    done = sum(one.done for one in slots)
    mean_s = sum(one.mean_us * one.done for one in slots) / done / 1e6 if done else 0.0
    bound_s = max(LATE * mean_s, LATE_S)
    return tuple(one.worker for one in slots if one.silent_s > bound_s)
