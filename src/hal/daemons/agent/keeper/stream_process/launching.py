"""Ranks of a parallel program on one node: several processes of one command inside a step, over one stream.

They begin when the client has sent the variables that they are to have. The output of each is told apart by its rank;
input goes to rank 0, signals to all. What is left of any of them is ended when the last one has ended, or the client.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from hal.core.model.rank_variables import variables_of_rank
from hal.daemons.agent.keeper.program_streams import MAX_BACKLOG_BYTES, exit_message
from hal.daemons.agent.keeper.stream_process.inside import Inside
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal
from hal.daemons.agent.keeper.stream_process.remains import end_all, reap
from hal.daemons.agent.keeper.stream_process.session import (
    ARRIVAL_S,
    STEP_ENDED,
    Command,
    Greeted,
    hear_client,
    new_name,
)
from hal.runtime.stream_link import READ_BYTES, Link, Watched
from hal.wire.step_streams import (
    BEGIN,
    CODE,
    DATA,
    END,
    HEAD,
    OPENED,
    RANK,
    SIGNAL,
    VARIABLES,
    Backlog,
    MalformedStreamError,
    failure,
    message,
)

MAX_VARIABLE_BYTES = 1 << 20
"""All variables together that a client may send."""


class LaunchSession:
    """Passes messages between a client and its ranks on this node."""

    def __init__(self, link: Link, client: Greeted, inside: Inside, order: Order) -> None:
        self._link = link
        self._reader = client.reader
        self._inside = inside
        self._order = order
        self._watched = Watched()
        self._variables = bytearray()
        self._directory: str | None = None
        """Where they begin, once the client has said so."""
        self._ranks: dict[int, Command] = {}
        self._left: set[int] = set()
        """Those of which the client does not know that they have ended."""
        self._early: list[tuple[int, bytes]] = []
        """Input, and its end, that came before they had begun."""
        self._early_bytes = 0
        self._about = -1
        """The rank that the next messages to the client are about."""
        self._gone = ""
        self._name = new_name(inside)
        """Of all that is begun here."""
        self.backlog = Backlog()
        """What the client has not read yet."""
        try:
            self._hear(client.early)
        except MalformedStreamError as error:
            self._gone = f"the client sent what is no message: {error}"

    def run(self, wake: int) -> bytes:
        """Serve until all ranks have ended, or the step or the client has; returns the last words for the client.

        Args:
            wake: is readable when a child has ended.
        Raises:
            Refusal: they could not be begun.
        """
        self._await_begin()
        try:
            self._begin()
        except Refusal:
            self._end_ranks(politely=False)
            raise
        self._inside.close()
        self.backlog.put(message(OPENED))
        self._watched.want(wake, read=True)
        self._watched.want(self._inside.pidfd, read=True)
        while True:
            self._look()
            ready = self._watched.wait(self._timeout_ms())
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, READ_BYTES)
            self._reap()
            if self._inside.pidfd in ready:
                self._end_ranks(politely=True)
                return failure("unreachable", STEP_ENDED)
            self._read_client(ready)
            for command in self._ranks.values():
                command.streams.write_input(self._watched)
            self._read_outputs(ready)
            self._tell_ends()
            self.backlog.flush(self._link.write)
            if self._gone or self._link.broken:
                self._end_ranks(politely=True)
                return failure("unreachable", self._gone or self._link.broken)
            if not self._left:
                self._end_ranks(politely=False)
                return message(END)

    def _await_begin(self) -> None:
        """
        Raises:
            Refusal: the client did not say in time with which variables, or has gone.
        """
        deadline_s = time.monotonic() + ARRIVAL_S
        self._watched.want(self._link.fileno(), read=True, gone=True)
        while self._directory is None or self._gone:
            if self._gone:
                raise Refusal("unreachable", self._gone)
            left_ms = (deadline_s - time.monotonic()) * 1000
            if left_ms <= 0:
                raise Refusal("timed-out", "the client did not say how to begin")
            self._read_client(self._watched.wait(0 if self._link.pending else left_ms))

    def _begin(self) -> None:
        order = self._order
        pairs = (os.fsdecode(entry).partition("=") for entry in bytes(self._variables).split(b"\0") if b"=" in entry)
        shared = {name: value for name, _, value in pairs if name}
        step = self._inside.environment
        threads = _threads(step | shared, order.ranks)
        cpus = _parts_of_cpus(order)
        for local in range(order.ranks):
            rank = order.first_rank + local * order.stride
            own = variables_of_rank(rank, order.size, local, order.ranks, step=step, passed=shared)
            if threads:
                own["OMP_NUM_THREADS"] = threads
            self._ranks[rank] = Command(
                order,
                self._inside,
                variables=shared | own,
                directory=self._directory or "",
                reads=not rank,
                name=self._name,
                cpus=cpus[local] if cpus else (),
            )
            self._left.add(rank)
        for kind, body in self._early:
            self._obey(kind, body)

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _waiting_bytes(self) -> int:
        """Of input that rank 0 has not read."""
        return self._ranks[0].streams.waiting.bytes if 0 in self._ranks else self._early_bytes

    def _look(self) -> None:
        room = self.backlog.bytes < MAX_BACKLOG_BYTES
        for rank in self._left:
            streams = self._ranks[rank].streams
            if not room:
                streams.wait_for_room()
            streams.watch(self._watched, room=room)
        read = self._waiting_bytes < MAX_BACKLOG_BYTES
        self._watched.want(self._link.fileno(), read=read, write=bool(self.backlog.bytes), gone=True)

    def _timeout_ms(self) -> float | None:
        if self._link.pending and self._waiting_bytes < MAX_BACKLOG_BYTES:
            return 0
        due = [at_s for rank in self._left if (at_s := self._ranks[rank].streams.drained_s) is not None]
        return max(0.0, (min(due) - time.monotonic()) * 1000) if due else None

    def _reap(self) -> None:
        ended = reap()
        for rank in self._left if ended else ():
            streams = self._ranks[rank].streams
            if streams.pid in ended and streams.status is None:
                streams.note_ended(ended[streams.pid])

    def _read_client(self, ready: dict[int, int]) -> None:
        room = self._waiting_bytes < MAX_BACKLOG_BYTES
        self._gone = hear_client(self._link, self._reader, ready, self._hear, room=room)

    def _hear(self, messages: Iterable[tuple[int, bytes | memoryview]]) -> None:
        for kind, body in messages:
            if kind == VARIABLES and self._directory is None:
                self._variables += body
                if len(self._variables) > MAX_VARIABLE_BYTES:
                    raise MalformedStreamError(f"more than {MAX_VARIABLE_BYTES >> 20} MiB of variables")
            elif kind == BEGIN and self._directory is None:
                self._directory = os.fsdecode(bytes(body))
            elif not self._ranks:
                self._early.append((kind, bytes(body)))
                self._early_bytes += HEAD.size + len(body)
            else:
                self._obey(kind, body)

    def _obey(self, kind: int, body: bytes | memoryview) -> None:
        if kind in (DATA, END) and 0 in self._ranks:
            self._ranks[0].streams.obey(kind, body)
        elif kind == SIGNAL:
            for command in self._ranks.values():
                command.streams.obey(kind, body)

    def _read_outputs(self, ready: dict[int, int]) -> None:
        # Behind the one that was read last, so that no rank waits for ever where all write more than is taken.
        for rank in sorted(self._left, key=lambda rank: (rank <= self._about, rank)):
            for kind, data in self._ranks[rank].streams.read(ready, self._watched):
                self._name_rank(rank)
                self.backlog.put(HEAD.pack(kind, len(data)), data)
                if self.backlog.bytes >= MAX_BACKLOG_BYTES:
                    return

    def _tell_ends(self) -> None:
        for rank in sorted(self._left):
            streams = self._ranks[rank].streams
            if streams.status is not None and streams.drained:
                streams.forget(self._watched)
                self._left.discard(rank)
                self._name_rank(rank)
                self.backlog.put(exit_message(streams.status))

    def _name_rank(self, number: int) -> None:
        if number != self._about:
            self._about = number
            self.backlog.put(message(RANK, CODE.pack(number)))

    def _end_ranks(self, *, politely: bool) -> None:
        """All that is left of them: they are children of this process, or adopted by it."""
        for command in self._ranks.values():
            command.streams.close()
        for command in list(self._ranks.values())[:1]:
            end_all(command.streams.pid, self._name, politely=politely)


def _parts_of_cpus(order: Order) -> list[tuple[int, ...]]:
    """The CPUs that each rank keeps to; none: they share those of the step."""
    if not order.bind or order.ranks < 2 or not order.cpus:
        return []
    from hal.daemons.agent.keeper.stream_process.rank_cpus import parts_of_cpus  # pathlib is a tenth of every start

    return parts_of_cpus(order.cpus, order.ranks)


def _threads(variables: dict[str, str], ranks: int) -> str:
    """Return OMP_NUM_THREADS of each rank: its part of the step's cores, if its value now is all of them; or ''."""
    try:
        cores = -(-int(float(variables["HAL_CPUS"]) * 1000) // 1000)
    except (KeyError, ValueError):
        return ""
    return str(max(1, cores // ranks)) if variables.get("OMP_NUM_THREADS") == str(cores) else ""
