"""A session with several brokers: one executor, whose tasks are spread over them.

Each task belongs to one broker from the moment it is submitted: tasks with a key to the one that the key stands for, so
that all clients agree; others to one with few tasks for its slots. Slots that have nothing to do follow the tasks
(`hal.client.sessions.moves`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, ParamSpec, TypeVar

from hal.client.sessions.answers import Stored
from hal.client.sessions.core import Options, SessionCore
from hal.client.sessions.errors import SessionLost
from hal.client.sessions.executor import Session
from hal.client.sessions.mapping import BLOCK_TASKS, TaskMap, title_of
from hal.core.model.errors import HALError, SpecError, UnreachableError
from hal.runtime.session_file import SessionFile, shard_of
from hal.runtime.shared_values import SharedValue, note_used, resolve

MAX_KEYS: Final = 65_536
"""Keys whose broker is remembered, so that it is not computed again."""
FIRST_BLOCK: Final = 8
"""Tasks of the first block of a map for each broker; blocks double, so that a few long tasks are spread, too."""
LEAST_BLOCK: Final = 64
NO_SLOT: Final = 0.01
"""For how many slots a broker counts that has none."""
P = ParamSpec("P")
T = TypeVar("T")


class _Here(threading.local):
    """The number of the broker for which this thread pickles."""

    def __init__(self) -> None:
        self.shard = 0


_here: Final = _Here()


class ShardedValue(SharedValue):
    """A value that each broker of a session has.

    Attributes:
        refs: its id, by the number of the broker.
    """

    def __init__(self, refs: dict[int, int]) -> None:
        super().__init__(next(iter(refs.values())))
        self.refs = refs

    def __reduce__(self) -> tuple[Callable[[int], Any], tuple[int]]:
        ref = self.refs.get(_here.shard)
        if ref is None:
            raise HALError(f"shard {_here.shard} of the session does not have the value", hint="put it there again")
        note_used(frozenset((ref,)))
        return resolve, (ref,)


class ShardCore(SessionCore):
    """The connection to one of the brokers."""

    def __init__(self, session: SessionFile, *, shard: int, readers: set[threading.Thread], **more: Any) -> None:
        """
        Args:
            session: the file of that broker.
            shard: its number.
            readers: threads that read from the brokers of the session; this one's is added.
            more: as for `SessionCore`.
        Raises: as `SessionCore`.
        """
        self.shard = shard
        self._readers = readers
        super().__init__(session, **more)
        readers.add(self._reader)

    def encode(self, value: Any) -> bytes:
        """See `SessionCore`."""
        _here.shard = self.shard
        return super().encode(value)

    def encode_function(self, function: Callable[..., Any]) -> bytes:
        """See `SessionCore`."""
        _here.shard = self.shard
        return super().encode_function(function)

    def _reads_here(self) -> bool:
        """A thread that reads from one broker must not wait for another one, whose thread may wait for it."""
        return threading.current_thread() in self._readers


class Balance:
    """Which broker gets the next task. Safe from several threads: a race makes a choice a little worse.

    Args:
        session: its file.
        cores: connections to the brokers, one at least.
    """

    def __init__(self, session: SessionFile, cores: Sequence[SessionCore]) -> None:
        self.session = session
        self.cores = tuple(cores)
        self._slots: dict[str, dict[int, float]] = {}
        """By shape and number of the broker; one that is not there counts as one."""
        self._at = self._chosen = 0
        self._of_key: dict[str, SessionCore] = {}

    def note_slots(self, shape: str, slots: dict[int, int]) -> None:
        """How many slots each broker has now."""
        self._slots[shape] = {shard: count or NO_SLOT for shard, count in slots.items()}

    @property
    def living(self) -> list[SessionCore]:
        """Those whose broker is there.

        Raises:
            SessionLost: none is.
        """
        found = [core for core in self.cores if core.lost is None]
        if not found:
            raise self.cores[0].lost or SessionLost("the session is lost")
        return found

    def choose(self, options: Options) -> SessionCore:
        """Which broker gets a task with these options.

        Raises:
            SessionLost: none is there.
        """
        if options.key:
            return self._home(options.key)
        cores = self.cores
        self._at = at = (self._at + 1) % len(cores)
        one, other = cores[at], cores[self._chosen]
        if one.lost is not None or other.lost is not None:
            one = min(self.living, key=lambda core: self._load(core, options.shape))
        elif one is not other and self._load(one, options.shape) > self._load(other, options.shape):
            return other
        self._chosen = self.cores.index(one)
        return one

    def _load(self, core: SessionCore, shape: str) -> float:
        return (core.pending + 1) / self._slots.get(shape, {}).get(core.shard, 1)

    def _home(self, key: str) -> SessionCore:
        """The highest of the hashes of key and broker: when a broker is lost, only its own keys move."""
        core = self._of_key.get(key)
        if core is None or core.lost is not None:
            if len(self._of_key) >= MAX_KEYS:
                self._of_key.clear()
            core = max(self.living, key=lambda one: blake2b(f"{one.shard}/{key}".encode(), digest_size=8).digest())
            self._of_key[key] = core
        return core


class ShardedSession(Session):
    """The tasks of one client in a session with several brokers."""

    def __init__(self, balance: Balance, options: Options | None = None) -> None:
        """Use `open_session`."""
        super().__init__(balance.cores[0], options)
        self._balance = balance
        self._cores = balance.cores
        self._file = balance.session
        self._on = {core: Session(core, options) for core in balance.cores}

    def _with(self, options: Options) -> Session:
        return ShardedSession(self._balance, options)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Session.submit`."""
        while True:
            core = self._balance.choose(self._options)
            try:
                return self._on[core].submit(fn, *args, **kwargs)
            except SessionLost:
                if core.lost is None:
                    raise

    def put(self, value: Any) -> SharedValue:
        """See `Session.put`. Each broker is sent the value."""
        refs: dict[int, int] = {}
        for core in self._balance.living:
            core.check()
            refs[core.shard] = core.store_object(core.encode(value))
        return ShardedValue(refs)

    def update(self, shared: SharedValue, value: Any) -> None:
        """See `Session.update`."""
        if not isinstance(shared, ShardedValue):
            raise SpecError("the shared value belongs to another session", hint="put it into the session it is for")
        for core in self._balance.living:
            core.check()
            shared.refs[core.shard] = core.store_object(core.encode(value), shared.refs.get(core.shard, 0))

    def task_map(
        self,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        timeout: float | None,
        progress: bool | str = False,
    ) -> TaskMap:
        """See `Session.task_map`."""
        for core in self._balance.living:
            core.check()
        tasks = ShardedMap(self._balance, fn, iterables, self._task_options(), timeout, title_of(progress))
        tasks.fill()
        return tasks


class ShardedMap(TaskMap):
    """One call of `map`, whose blocks go to several brokers."""

    def __init__(
        self,
        balance: Balance,
        function: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        options: Options,
        timeout_s: float | None,
        title: str | None = None,
    ) -> None:
        self._balance = balance
        super().__init__(balance.choose(options), function, iterables, options, timeout_s, title, balance.session)
        self._held = {self._core: self._stored}
        self._most = max(BLOCK_TASKS // len(balance.cores), LEAST_BLOCK)
        self._sent = 0

    def _next_core(self) -> tuple[SessionCore, Stored]:
        core = self._balance.choose(self._options)
        stored = self._held.get(core)
        if stored is None:
            stored = self._held[core] = core.hold(self._function)
        return core, stored

    def _next_parts(self, core: SessionCore) -> list[bytes]:
        _here.shard = core.shard
        self._block_tasks = min(FIRST_BLOCK << min(self._sent // len(self._balance.cores), 16), self._most)
        self._sent += 1
        return super()._next_parts(core)

    def _let_go(self) -> None:
        for core, stored in self._held.items():
            core.let_go(stored)


def open_shards(session: SessionFile, **more: Any) -> ShardedSession:
    """Connect to the brokers of a session: all of a durable one, those that answer of others.

    Args:
        more: as for `SessionCore`.
    Raises: as `open_session`.
    """
    return ShardedSession(Balance(session, connect_shards(session, **more)))


def connect_shards(session: SessionFile, **more: Any) -> list[SessionCore]:
    """The connections of `open_shards`."""
    readers: set[threading.Thread] = set()
    cores: list[SessionCore] = []
    failure: UnreachableError | None = None
    for number in range(session.shards):
        try:
            cores.append(ShardCore(shard_of(session, number), shard=number, readers=readers, **more))
        except UnreachableError as error:
            failure = error
            if session.journal:
                break
    if failure is not None and (session.journal or not cores):
        close_all(cores)
        raise failure
    return cores


def close_all(cores: Iterable[SessionCore]) -> None:
    """Close connections over which nothing was submitted."""
    for core in cores:
        with suppress(HALError):
            core.give_up("another broker of the session does not answer")
