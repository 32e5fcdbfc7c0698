"""Opens a session in a HAL: its broker is a job, its slots are the tasks of another one.

The two find each other by the session's file, in a private directory of this machine, which the broker takes away when
it ends. Loaded when the first session is opened.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from msgspec import structs

from hal.client.rest import access_calls
from hal.client.session import Session
from hal.client.sessions.core import SessionCore
from hal.client.sessions.demand import KEEP_S, Overseer, Wanted
from hal.client.sessions.job_labels import BROKER, PART_LABEL, SESSION_LABEL, SHAPE_LABEL, SLOTS
from hal.client.sessions.kept import FILE, forget, kept_session
from hal.client.sessions.listing import SessionInfo, file_of, my_session, sessions_of
from hal.client.sessions.shards import Balance, ShardedSession, close_all, connect_shards
from hal.client.sessions.slot_groups import SlotGroup, cancel_all
from hal.core.model.errors import ConflictError, HALError, NotFoundError, SpecError, TimedOutError, UnreachableError
from hal.core.model.facts import NODE_LABEL
from hal.core.model.units import parse_size
from hal.runtime.identity import boot_id
from hal.runtime.privacy import make_private
from hal.runtime.session_file import (
    MAX_SHARDS,
    SessionFile,
    durable_directory,
    new_session_file,
    parse_address,
    private_directory,
    shards_at,
    write_session_file,
)
from hal.wire.frames.sessions import MAX_SHAPES, MAX_THREADS

if TYPE_CHECKING:
    from hal.client.addresses.address import Address
    from hal.client.job import Job
    from hal.client.sessions.machines import Spread
    from hal.client.sync_client import Client
    from hal.wire.frames.sessions import SessionNumbers

OPENER: Final = "opener"
"""The key of the client that opens a durable session, or opens it again."""
SLOTS_PER_BROKER: Final = 1_000
APART_LABEL: Final = "app/hal-session"
"""Of brokers, by which those of one session keep away from each other."""
COLLECTOR_SOCKET: Final = "observability-wire.sock"
END_S: Final = 60.0
"""How long a broker that is being replaced is waited for, to tell it that the session is over."""
ENDED_S: Final = 15.0
"""How long the end of a session waits for its jobs to end."""
LOOK_S: Final = 0.01
MAX_LOOK_S: Final = 0.03
BROKER_MEMORY: Final = "512MiB"
RETRIES: Final[Mapping[str, Any]] = {"max": 1_000, "backoff": "100ms", "longest": "10s"}
"""Of slots that are no extensions, where workers that crash are first replaced by their own process; of the brokers of
durable sessions."""


class SlotOptions(TypedDict, total=False):
    """What each slot asks for, and whose it is: keywords of `submit` of the same names."""

    cpus: float | str
    memory: int | str
    gpus: float | str
    request: Mapping[str, Any]
    queue: str
    account: str
    qos: str
    priority: int
    walltime: float | str
    constraints: str | Sequence[str]
    exclude: str | Sequence[str]
    tolerate: str | Sequence[str]
    env: Mapping[str, object]
    workdir: str | os.PathLike[str]


class ShapeOptions(SlotOptions, total=False):
    """What the slots of a further shape ask for, beside what the session's do."""

    slots: int | tuple[int, int]
    threads: int
    worker_memory: int | str


class _Shape(NamedTuple):
    """The slots of one shape, as they were asked for."""

    least: int
    most: int
    threads: int
    worker_memory: int
    """Bytes; 0: as much as it likes."""
    options: Mapping[str, Any]


_REQUESTS: Final = ("cpus", "memory", "gpus", "request", "walltime")
"""Keywords that each shape has for itself."""
_SHAPE_NAME: Final = re.compile("[a-z0-9-]{1,32}")
MEMORY_SHARE: Final = 0.9
"""Of what a slot asks for: what its worker may have before it is replaced, if nothing else is said."""


class OpenedSession(Session):
    """A session that this program has opened in a HAL, or found there by name.

    Attributes:
        name: of the session.
        broker: the job that hands the tasks out.
        groups: the slots by shape.
    """

    def __init__(
        self,
        name: str,
        broker: Job,
        groups: Sequence[SlotGroup],
        core: Any,
        overseer: Overseer,
        forget: Callable[[], None] | None = None,
        found: bool = False,
    ) -> None:
        """Use `Client.session`.

        Args:
            core: what the class below is made of: a connection, or the balance between several.
        """
        super().__init__(core)
        self.name, self.broker = name, broker
        self.groups = {group.shape: group for group in groups}
        self._overseer = overseer
        self._ending = threading.Lock()
        self._over = False
        self._forget = forget
        self._found = found
        """Another program has opened it, and ends it."""

    @property
    def slots(self) -> Job:
        """The job whose tasks run the session's tasks: those that name no shape."""
        job = self.groups[""].job
        assert job is not None
        return job

    def __repr__(self) -> str:
        return f"<session {self.name}: broker job {self.broker.id}, slots job {self.slots.id}>"

    def numbers(self, *, slots: bool = False) -> SessionNumbers:
        """How the session goes: tasks that wait and were done, slots, latencies.

        Args:
            slots: of each slot, too.
        Raises:
            UnreachableError: the broker is gone.
        """
        found = self._overseer.numbers(slots=slots)
        if found is None:
            raise UnreachableError(f"the broker of session '{self.name}' is gone", hint=f"hal show {self.broker.id}")
        return found

    def leave(self) -> None:
        """Leave a durable session as it is: what was submitted runs, and its results are kept for who opens it again.

        Futures without a result fail with `SessionLost`.

        Raises:
            SpecError: the session is not durable.
        """
        if not self._overseer.durable:
            raise SpecError(f"session '{self.name}' is not durable", hint="client.session(durable=True) opens one")
        with self._ending:
            self._over = True
        self._overseer.leave()
        for core in self._cores:
            core.leave()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept nothing more, and end the session once all tasks have ended: both its jobs end, which this waits for.

        A session that was found by its name goes on, and so does a durable one that this program has lost.

        Args:
            wait: for that.
            cancel_futures: cancel tasks that no worker has.
        """
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end, name="hal-session-end").start()

    def _end(self) -> None:
        with self._ending:
            if self._over:
                return
            self._over = True
            super().shutdown(wait=True)
            if self._found or (self._overseer.durable and not all(core.finished for core in self._cores)):
                self._overseer.leave()
                return
            told = self._tell_end()
            # Workers that run end themselves, and the job with them; slots that only wait would look first. Those of a
            # broker whose machine is lost would wait for it.
            for group in self.groups.values():
                group.cancel(running=not told)
            if self._forget is not None:
                self._forget()
            with contextlib.suppress(HALError):  # the name is free then
                deadline_s = time.monotonic() + ENDED_S
                self.broker.wait(max(deadline_s - time.monotonic(), 0.0))
                for group in self.groups.values():
                    group.wait(max(deadline_s - time.monotonic(), 0.0))

    def _tell_end(self) -> bool:
        """Tell the broker, or the next one, if it is just being replaced; returns whether one was told."""
        deadline_s = time.monotonic() + END_S
        while not (told := self._overseer.end()) and self._overseer.durable and not self.broker.refresh().state.ended:
            if time.monotonic() > deadline_s:
                with contextlib.suppress(ConflictError):
                    self.broker.cancel()
                return False
            time.sleep(MAX_LOOK_S)
        return told


class OpenedShards(OpenedSession, ShardedSession):
    """One with several brokers."""


def open_session(
    client: Client,
    slots: int | tuple[int, int],
    name: str,
    linger: int,
    keep: float,
    python: str,
    timeout: float,
    options: Mapping[str, Any],
    durable: bool = False,
    shapes: Mapping[str, ShapeOptions] | None = None,
    threads: int = 1,
    worker_memory: int | str | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    shards: int = 0,
    slots_per_broker: int = SLOTS_PER_BROKER,
) -> OpenedSession:
    """See `Client.session`; the client is the session's own."""
    _check_keywords("session", options, SlotOptions.__annotations__)
    asked = _shapes(slots, threads, worker_memory, options, shapes or {})
    several = _number_of_shards(asked, shards, slots_per_broker)
    start = partial(_start, initializer=initializer, arguments=initargs)
    name = name or f"session-{secrets.token_hex(4)}"
    user = client.call(access_calls.who_am_i()).user
    if live := sessions_of(client.jobs(label={SESSION_LABEL: name}, user=user)):
        if not durable:
            raise ConflictError(f"there is a session '{name}' already", hint="client.find_session(name) connects to it")
        if (found := _come_back(client, live[0], timeout, start, asked, keep)) is not None:
            return found
    here, alone = _nodes_here(client, durable=durable)
    if not (alone or durable) and several > 1:
        here = []  # its brokers run where HAL lets them
    directory = durable_directory(client.address.named, name) if durable else private_directory() if here else None
    kept = kept_session(directory) if durable and directory is not None else None
    spread = None if alone and not (kept and kept.authority) else _spread(client, user)
    jobs: list[Job] = []
    groups: list[SlotGroup] = []
    try:
        session = kept or new_session_file(
            directory or Path("/"), name=name, linger_s=linger, passing=True, durable=durable
        )
        shapes_of_it = tuple(shape for shape in asked if shape)
        session = structs.replace(session, shapes=shapes_of_it, collector=_collector(client.address))
        if kept is None:
            session = structs.replace(session, shards=several if several > 1 else 0)
        parse_address(session.listen[0])
        brokers, more = session, dict[str, Any]()
        if spread is not None:
            session, brokers, more = spread.store(
                session, elsewhere=directory is None, kept=directory if durable else None
            )
        file = "" if spread is None else spread.brokers_file
        common = _common(name, BROKER, "", here, options)
        if session.shards:
            more["array"] = session.shards
            if not here:
                more["prefer_apart"] = f"{APART_LABEL}@node"  # each has work for a core
                common["labels"][APART_LABEL] = BROKER
        if directory is not None:
            make_private(directory)
            write_session_file(directory / FILE, structs.replace(brokers, linger_s=linger))
            file = str(directory / FILE)
        broker = client.submit([python, "-m", "hal.daemons.broker", "--session", file],
            **common, **more, request={"cpu": 0, "memory": BROKER_MEMORY},
            retries=RETRIES if durable else 0,
        )  # fmt: skip
        jobs.append(broker)
        words, secret = ["--session", file], dict[str, Any]()
        if spread is not None:
            addresses = spread.addresses(broker, name, timeout, session.shards or 1)
            session = shards_at(session, addresses)
            words, here = ["--session", spread.file, *(word for one in addresses for word in ("--dial", one))], []
            secret = {"secrets": [spread.name]}
        for shape, one in asked.items():
            group = _new_group(
                client, name, broker, shape, one, [python, "-m", "hal.daemons.worker", *words], secret, here, keep
            )
            groups.append(group)
            group.begin(max(one.least, 0 if shape else 1))
        cores = _connected(session, broker, timeout, OPENER if durable else "", start)
        opened = _opened(session, name, broker, groups, cores, spread.remove if spread is not None else None)
    except BaseException:
        cancel_all([*jobs, *(group.job for group in groups if group.job is not None)])
        if kept is None and directory is not None:
            forget(directory)
        if spread is not None:
            spread.remove()
        raise
    return opened


def _collector(address: Address) -> str:
    """The socket of the collector beside that of the controller, whether there is one now or not; '': the controller is
    reached otherwise."""
    known = address.home.known_socket_dir() if address.home is not None else None
    return str(known / COLLECTOR_SOCKET) if known is not None else ""


def _number_of_shards(asked: Mapping[str, _Shape], shards: int, slots_per_broker: int) -> int:
    """How many brokers a session with these shapes has.

    Args:
        shards: so many; 0: as many as its slots need.
    Raises:
        SpecError: that is out of bounds.
    """
    if not 0 <= shards <= MAX_SHARDS:
        raise SpecError(f"{shards} shards of a session", hint=f"between 1 and {MAX_SHARDS}; 0: as its slots need")
    if slots_per_broker < 1:
        raise SpecError(f"{slots_per_broker} slots of a broker", hint="one at least")
    slots = sum(one.most * one.threads for one in asked.values())
    found = shards or -(-slots // slots_per_broker)
    if found > MAX_SHARDS:
        raise SpecError(
            f"{slots} slots at {slots_per_broker} a broker need {found} brokers", hint=f"at most {MAX_SHARDS}"
        )
    return found


def _start(session: SessionFile, **more: Any) -> Sequence[SessionCore]:
    """Connect to all brokers of a session."""
    return connect_shards(session, **more) if session.shards else (SessionCore(session, **more),)


def _opened(
    session: SessionFile,
    name: str,
    broker: Job,
    groups: Sequence[SlotGroup],
    cores: Sequence[SessionCore],
    forget: Callable[[], None] | None,
    *,
    found: bool = False,
) -> OpenedSession:
    """Begin to oversee a session.

    Args:
        cores: connections to its brokers.
        forget, found: as for `OpenedSession`.
    Raises: as `Overseer`.
    """

    def give_up(reason: str) -> None:
        for core in cores:
            core.give_up(reason)

    if session.shards:
        balance = Balance(session, cores)
        overseer = Overseer(session, groups, give_up, balance.note_slots)
        opened: OpenedSession = OpenedShards(name, broker, groups, balance, overseer, forget, found)
    else:
        overseer = Overseer(session, groups, give_up)
        opened = OpenedSession(name, broker, groups, cores[0], overseer, forget, found)
    overseer.begin()
    return opened


def _check_keywords(what: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in given:
        if key not in known:
            raise SpecError(f"{what} has no keyword '{key}'", hint=f"keywords: {', '.join(known)}")


def _shapes(
    slots: int | tuple[int, int],
    threads: int,
    worker_memory: int | str | None,
    options: Mapping[str, Any],
    shapes: Mapping[str, ShapeOptions],
) -> dict[str, _Shape]:
    """All shapes by name; '' is that of the session itself.

    Raises:
        SpecError: one is malformed.
    """
    if len(shapes) >= MAX_SHAPES:
        raise SpecError(f"{len(shapes)} shapes of a session", hint=f"at most {MAX_SHAPES - 1}")
    found = {"": _shape("session", slots, threads, worker_memory, options)}
    same = {key: value for key, value in options.items() if key not in _REQUESTS}
    for name, given in shapes.items():
        if not _SHAPE_NAME.fullmatch(name):
            raise SpecError(f"shape '{name}'", hint="lower-case letters, digits and hyphens, at most 32")
        _check_keywords(f"shape '{name}'", given, _SHAPE_KEYWORDS)
        own = {key: value for key, value in given.items() if key in SlotOptions.__annotations__}
        found[name] = _shape(
            f"shape '{name}'",
            given.get("slots", (0, 8)),
            given.get("threads", 1),
            given.get("worker_memory"),
            {**same, **own},
        )
    return found


_SHAPE_KEYWORDS: Final = {**SlotOptions.__annotations__, "slots": 0, "threads": 0, "worker_memory": 0}


def _shape(
    what: str,
    slots: int | tuple[int, int],
    threads: int,
    worker_memory: int | str | None,
    options: Mapping[str, Any],
) -> _Shape:
    both = (slots, slots) if isinstance(slots, int) else slots
    match both:
        case (int() as least, int() as most):
            pass
        case _:
            raise SpecError(f"{what}: slots: {slots!r}", hint="a number, or (least, most): slots=(1, 8)")
    if not 0 <= least <= most or most < 1:
        raise SpecError(f"{what}: slots: {least} to {most}", hint="a number, or (least, most): slots=(1, 8)")
    if not 1 <= threads <= MAX_THREADS:
        raise SpecError(f"{what}: {threads} threads of a worker", hint=f"between 1 and {MAX_THREADS}")
    if worker_memory is None:
        memory = options.get("memory") or options.get("request", {}).get("memory") or 0
        bound = int(parse_size(memory) * MEMORY_SHARE) if memory else 0
    else:
        bound = parse_size(worker_memory, field="worker_memory") if worker_memory else 0
    return _Shape(least, most, threads, bound, options)


def _new_group(
    client: Client,
    name: str,
    broker: Job,
    shape: str,
    asked: _Shape,
    command: Sequence[str],
    more: Mapping[str, Any],
    here: Sequence[str],
    keep: float,
) -> SlotGroup:
    """The slots of one shape, which have no job yet.

    Args:
        command: of a worker of the session's own shape.
        more: keywords of `submit`.
    """
    spec = {
        "what": [*command, *_words(shape, asked)],
        **_common(name, SLOTS, shape, here, asked.options), **more, "array": asked.most, "workers": True,
        **{key: asked.options[key] for key in _REQUESTS if key in asked.options},
        **({"extensions": asked.most - asked.least} if asked.most > asked.least else {}),
        "after": f"after:{broker.id}", "on_dependency_failed": "cancel", "retries": RETRIES,
    }  # fmt: skip
    wanted = Wanted(asked.least, asked.most, keep, floor=0 if shape else 1)
    return SlotGroup(client, shape, wanted, asked.threads, spec)


def _words(shape: str, asked: _Shape) -> list[str]:
    """Further words of the command of a worker."""
    words = ["--shape", shape] if shape else []
    words += ["--threads", str(asked.threads)] if asked.threads > 1 else []
    return words + (["--most-memory", str(asked.worker_memory)] if asked.worker_memory else [])


def _common(name: str, part: str, shape: str, here: Sequence[str], options: Mapping[str, Any]) -> Any:
    """What all jobs are told."""
    same = ("queue", "account", "qos", "priority", "exclude", "tolerate", "env", "workdir")
    constraints = options.get("constraints", ())
    constraints = [constraints] if isinstance(constraints, str) else list(constraints)
    return {
        **{key: options[key] for key in same if key in options},
        "name": name,
        "labels": {
            SESSION_LABEL: name,
            PART_LABEL: part,
            **({SHAPE_LABEL: shape} if shape else {}),
        },
        "constraints": [
            *(constraints if part == SLOTS else ()),
            *([f"{NODE_LABEL}={'|'.join(here)}"] if here else ()),
        ],
    }


def _nodes_here(client: Client, *, durable: bool) -> tuple[list[str], bool]:
    """The nodes of this machine, and whether there are no others.

    Raises:
        ConflictError: none of them is, and the session must be on this machine.
    """
    nodes = client.nodes()
    here = [node.name for node in nodes if node.boot_id == boot_id()]
    if not here and (durable or not nodes):
        raise ConflictError(
            "no node of this HAL is on this machine", hint="open the session on a machine that is a node"
        )
    return here, len(here) == len(nodes)


def _spread(client: Client, user: str) -> Spread:
    from hal.client.sessions.machines import Spread  # most sessions are on one machine

    spread = Spread(client)
    spread.remove_left(user)
    return spread


def _connected(
    session: SessionFile,
    broker: Job,
    timeout: float,
    key: str = "",
    start: Callable[..., Sequence[SessionCore]] = _start,
) -> Sequence[SessionCore]:
    """Wait until the broker listens; if there are several, all of them.

    Args:
        key: of a client of a durable session.
        start: makes the connection.

    Raises:
        ConflictError: its job ended.
        TimedOutError: it did not begin in time.
    """
    asked_s, look_s = time.monotonic(), LOOK_S
    deadline_s = asked_s + timeout
    while True:
        try:
            cores = start(session, client=key)
            if len(cores) == (session.shards or 1):
                return cores
            close_all(cores)
            raise UnreachableError(f"{len(cores)} of {session.shards} brokers answer")
        except UnreachableError as error:
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise TimedOutError(
                    f"the broker of session '{session.name}' has not begun within {timeout:g} s",
                    hint=f"hal why {broker.id}",
                ) from error
            if now_s - asked_s > 1.0:
                asked_s, info = now_s, broker.refresh()
                if info.state.ended:
                    raise ConflictError(
                        f"the broker of session '{session.name}' has ended: {info.reason or info.state}",
                        hint=f"hal logs {broker.id}",
                    ) from error
        time.sleep(look_s)
        look_s = min(look_s * 1.2, MAX_LOOK_S)


def find_session(client: Client, name: str, key: str = "") -> OpenedSession:
    """See `Client.find_session`; the client is the session's own."""
    return _found(client, my_session(client, name), key, 0.0, owned=False)


def _come_back(
    client: Client,
    found: SessionInfo,
    timeout: float,
    start: Callable[..., Sequence[SessionCore]],
    asked: Mapping[str, _Shape],
    keep: float,
) -> OpenedSession | None:
    """Connect to a durable session that runs; None: it has just ended, and is opened again.

    Raises:
        ConflictError: it is not durable.
    """
    try:
        return _found(client, found, OPENER, timeout, start, asked, keep)
    except (NotFoundError, ConflictError):
        if found.broker and not client.job(found.broker).refresh().state.ended:
            raise
    cancel_all([client.job(one.job) for one in found.shapes])
    return None


def _found(
    client: Client,
    found: SessionInfo,
    key: str,
    timeout: float,
    start: Callable[..., Sequence[SessionCore]] = _start,
    asked: Mapping[str, _Shape] | None = None,
    keep: float = KEEP_S,
    *,
    owned: bool = True,
) -> OpenedSession:
    """Connect to a session.

    Args:
        timeout: seconds to wait for its broker, if it is durable and its client has a key.
        asked: its shapes; those that have no job now get one when there are tasks for them.
        owned: the end of this client's use is the session's end.
    """
    name = found.name
    session = file_of(client, found)
    if key and not session.journal:
        raise ConflictError(f"there is a session '{name}' already, which is not durable")
    broker = client.job(found.broker)
    secrets = (broker.refresh().spec or {}).get("secrets") or ()
    jobs = {one.shape: client.job(one.job) for one in found.shapes}
    groups = [_group_of(client, name, shape, job) for shape, job in jobs.items()]
    for shape, wanted in (asked or {}).items():
        if shape in ("", *session.shapes) and shape not in jobs:
            words, more = _worker_words(client, name, broker, session)
            here = [] if more else _nodes_here(client, durable=True)[0]
            group = _new_group(client, name, broker, shape, wanted, words, more, here, keep)
            if not shape:
                group.begin(max(wanted.least, 1))
            groups.append(group)
    cores = _connected(session, broker, timeout, key, start) if timeout else start(session, client=key)
    forget_it = None
    if secrets:
        from hal.client.sessions.machines import Spread

        forget_it = Spread(client, next(iter(secrets))).remove
    return _opened(session, name, broker, groups, cores, forget_it, found=not owned)


def _worker_words(client: Client, name: str, broker: Job, session: SessionFile) -> tuple[list[str], dict[str, Any]]:
    """The command of a worker of a session whose broker runs, and further keywords of `submit`."""
    spec = broker.refresh().spec or {}
    command = list(spec["command"])
    words = [command[0], "-m", "hal.daemons.worker", "--session"]
    if not spec.get("secrets"):
        return [*words, command[command.index("--session") + 1]], {}
    from hal.client.sessions.machines import Spread, secret_of

    spread = Spread(client, secret_of(spec))
    addresses = spread.addresses(broker, name, END_S, session.shards or 1)
    return [*words, spread.file, *(word for one in addresses for word in ("--dial", one))], {"secrets": [spread.name]}


def _group_of(client: Client, name: str, shape: str, job: Job) -> SlotGroup:
    """Slots of a job that another program has submitted."""
    asked = job.refresh().spec or {}
    words = asked["command"]
    threads = int(words[words.index("--threads") + 1]) if "--threads" in words else 1
    most, told = asked["array"]["count"], asked["array"].get("max_running", 0)
    least = most - asked.get("extensions", 0)

    def find() -> str:
        return next((one.job for one in my_session(client, name).shapes if one.shape == shape), "")

    wanted = Wanted(least, most, floor=0 if shape else 1)
    return SlotGroup(client, shape, wanted, threads, None, job, told, find)
