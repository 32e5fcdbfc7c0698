"""All connections of REST in one process: how many there may be, of whom, and how long each may take for what it does.

One clock for all of them: `tick`, once a second, looks into tables in which a connection stands only while its peer is
awaited. A second in which the loop did not turn does not count against anybody. The private socket has bounds of its
own: nobody from outside can use up what the owner needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, Protocol

from hal.core.model import HALError, OverloadedError
from hal.rest.errors import TooSlowError
from hal.rest.identity import Identity
from hal.rest.limiter import MIN_RETRY_S, TooManyError
from hal.runtime.interface import Logger

HEAD_S: Final = 10
"""From the connection, or the first byte of a later request, to the end of the request's head."""
KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle."""
BODY_S: Final = 10
"""A body is judged so often,"""
BODY_BYTES: Final = 160 << 10
"""and so much of it must have come since: 16 KiB a second."""
STALL_S: Final = 60
"""An answer that is not read is judged so often,"""
STALL_BYTES: Final = 60 << 10
"""and so much of it must have been read since: 1 KiB a second."""
CLOSE_S: Final = 5
"""How long a closed connection may stay open when all was read; where not, its reader is judged as any other."""
SWEEP_S: Final = 10
"""Connections that are closed and in no table are looked for so often."""
MAX_UNSENT_BYTES: Final = 512 << 20
"""Of answers that are not read, of all users but the owner."""
MAX_UNSENT_BYTES_OF_ONE: Final = 128 << 20

MAX_STRANGERS: Final = 256
"""Connections of one listener that have not shown who they are, from the first byte of a handshake."""
MAX_STRANGERS_OF_ONE: Final = 64
"""Of these, from one address or user id."""
MAX_RELAYS: Final = 64
"""Addresses of relays (a controller's followers) that are remembered: each of their connections is one request of
somebody."""
STRANGER_GRACE_S: Final = 1.0
"""When there are so many, the oldest is closed for the next one once it is this old."""
SPARE_CONNECTIONS: Final = 200
"""Idle ones that a user may have beside `access.at_once` requests under way."""
RESERVED: Final = 256
"""Descriptors that connections from outside leave to the private socket, the wire and files; a quarter, of few."""
RESERVED_INSIDE: Final = 32
"""Of these, what the private socket leaves to the wire and files; an eighth of the former, of few."""
MAX_EVICTED: Final = 16
"""Connections closed at once when no descriptor is left."""
STREAK_S: Final = 60
"""What is repeated without end is logged when it begins, and then once in this time."""


class TrackedConnection(Protocol):
    """What is asked of a connection that is counted and timed here."""

    where: str
    """The address or user id it comes from."""
    private: bool
    """It came over the socket in HAL's own directory."""
    user: str
    """Whose requests were let in last; empty: a stranger so far."""
    accepted_s: float
    """When, by the clock of the loop."""
    table: dict[TrackedConnection, int] | None
    """In which table of `Connections` it stands, if in any."""
    body_bytes: int
    """Of the request that is being read."""
    counted_bytes: int
    """Of these: judged already."""
    unsent_bytes: int
    """Of answers, when its peer was last seen not to read them."""
    unsent_of: str
    """The user to whom these are counted."""

    @property
    def closing(self) -> bool:
        """It is being closed."""

    @property
    def waits_for_us(self) -> bool:
        """It is not read from at present, so its peer cannot be blamed for sending nothing."""

    @property
    def unread_bytes(self) -> int:
        """Of its answers: here, and in the kernel's hands."""

    def cut(self, error: HALError | None = None) -> None:
        """Close it, after an answer that says why where none has begun."""

    def drop(self) -> None:
        """Close it at once, whatever it is doing."""


class Strangers:
    """Connections of one listener whose peers have not shown who they are, oldest first."""

    def __init__(self) -> None:
        self.all: dict[TrackedConnection, None] = {}
        self.of: dict[str, dict[TrackedConnection, None]] = {}
        """By where they come from."""

    def add(self, connection: TrackedConnection) -> None:
        """Add a connection."""
        self.all[connection] = None
        self.of.setdefault(connection.where, {})[connection] = None

    def remove(self, connection: TrackedConnection) -> None:
        """Remove a connection, if it is one of these."""
        if connection in self.all:
            del self.all[connection]
            same = self.of[connection.where]
            del same[connection]
            if not same:
                del self.of[connection.where]


class Connections:
    """See the module."""

    def __init__(self, log: Logger, *, descriptors: int, at_once: int, now_s: Callable[[], float]) -> None:
        """
        Args:
            descriptors: how many this process may have open.
            at_once: requests that one user may have under way.
            now_s: of the loop.
        """
        reserved = min(RESERVED, descriptors // 4)
        self.most_public = descriptors - reserved
        """Descriptors from this number on are for what comes from inside: numbers are given out lowest first."""
        self.most_private = descriptors - min(RESERVED_INSIDE, reserved // 8)
        self.second = 0
        """Ticks so far."""
        self.heads: dict[TrackedConnection, int] = {}
        """Connections that send a head, and since when; this one and the others oldest first."""
        self.bodies: dict[TrackedConnection, int] = {}
        self.idle: dict[TrackedConnection, int] = {}
        self.idle_private: dict[TrackedConnection, int] = {}
        self.stalled: dict[TrackedConnection, int] = {}
        """Connections that do not read their answers."""
        self.closing: dict[TrackedConnection, int] = {}
        self.open: set[TrackedConnection] = set()
        self.freed: list[Callable[[], None]] = []
        """Called when a stranger's connection has ended, or is a stranger's no more."""
        self._log = log
        self._now_s = now_s
        self._of_one = max(1, min(at_once + SPARE_CONNECTIONS, self.most_public // 4))
        self._strangers: dict[TrackedConnection, Strangers] = {}
        self._relays: dict[str, None] = {}
        self._of: dict[str, dict[TrackedConnection, None]] = {}
        self._unsent: dict[str, int] = {}
        self._unsent_of_all = 0
        self._streaks: dict[str, _Streak] = {}

    # ── who may come in ───────────────────────────────────────────────────────────────────────────────────────────

    def room_for(self, strangers: Strangers) -> bool:
        """Whether the listener may accept one more; the oldest makes room."""
        while len(strangers.all) >= MAX_STRANGERS:
            if not self._drop_oldest(strangers.all, "closed strangers' connections: others dial"):
                return False
        return True

    def enter(self, connection: TrackedConnection, strangers: Strangers | None, descriptor: int) -> None:
        """It was accepted.

        Args:
            strangers: of its listener; None: it came over the private socket.
            descriptor: its number.
        Raises:
            OverloadedError: it cannot be kept.
        """
        most = self.most_private if strangers is None else self.most_public
        if descriptor >= most and not self.evict(1, private=strangers is None):
            self.note("refused connections: no descriptors are left for them", connection.where)
            raise OverloadedError("too many connections are open", hint="try again in a second")
        if strangers is not None:
            if not self.room_for(strangers):
                self.note("refused connections: too many have not asked for anything", connection.where)
                raise OverloadedError("too many connections have not asked for anything", hint="try again in a second")
            same = strangers.of.get(connection.where, {})
            most_of_one = MAX_STRANGERS if connection.where in self._relays else MAX_STRANGERS_OF_ONE
            while len(same) >= most_of_one:
                if not self._drop_oldest(same, "closed strangers' connections: too many come from there"):
                    self.note("refused connections: too many come from there", connection.where)
                    raise OverloadedError(
                        f"{connection.where} has {len(same)} connections that have not asked for anything",
                        hint="try again in a second",
                    )
            strangers.add(connection)
            self._strangers[connection] = strangers
        self.open.add(connection)

    def identify(self, connection: TrackedConnection, identity: Identity) -> None:
        """A request of theirs was let in on it.

        Raises:
            TooManyError: they have too many connections.
        """
        if connection.private:
            connection.user = identity.user
            return
        self._leave_user(connection)
        if not identity.inside:
            mine = self._of.setdefault(identity.user, {})
            if len(mine) >= self._of_one:
                spare = next((one for one in mine if one.table is self.idle), None)
                if spare is None:
                    self.note("refused connections: a user has too many", identity.user)
                    raise TooManyError(
                        f"{identity.user} has {len(mine)} connections open",
                        hint="close some of them",
                        retry_after_s=MIN_RETRY_S,
                        first=False,
                    )
                self._leave_user(spare)
                spare.cut()
            self._of.setdefault(identity.user, {})[connection] = None
        connection.user = identity.user
        self._forget_stranger(connection)

    def know_relay(self, where: str) -> None:
        """One of our own, which passes requests on, has shown its secret from there."""
        self._relays.pop(where, None)
        self._relays[where] = None
        if len(self._relays) > MAX_RELAYS:
            del self._relays[next(iter(self._relays))]

    def leave(self, connection: TrackedConnection) -> None:
        """Remove a connection that has ended."""
        self.open.discard(connection)
        self.closing.pop(connection, None)
        self.unstall(connection)
        self._leave_user(connection)
        self._forget_stranger(connection)

    def evict(self, most: int, *, private: bool = False) -> int:
        """Close connections so that there are descriptors again: idle ones first, then strangers'.

        Args:
            private: idle ones of the private socket, too.
        """
        found = list(islice(chain(self.idle, self.idle_private) if private else self.idle, most))
        for connection in found:
            connection.cut()
        now_s = self._now_s()
        for connection in list(islice(self._strangers, most - len(found))):
            if now_s - connection.accepted_s >= STRANGER_GRACE_S:
                self._forget_stranger(connection)
                connection.drop()
                found.append(connection)
        if found:
            self.note("closed connections: descriptors are needed", found[0].where)
        return len(found)

    def _drop_oldest(self, among: dict[TrackedConnection, None], why: str) -> bool:
        oldest = next(iter(among))
        if self._now_s() - oldest.accepted_s < STRANGER_GRACE_S:
            return False
        self.note(why, oldest.where)
        self._forget_stranger(oldest)
        oldest.drop()
        return True

    def _forget_stranger(self, connection: TrackedConnection) -> None:
        """Remove it from the strangers' connections."""
        strangers = self._strangers.pop(connection, None)
        if strangers is not None:
            strangers.remove(connection)
            for freed in self.freed:
                freed()

    def _leave_user(self, connection: TrackedConnection) -> None:
        mine = self._of.get(connection.user)
        if mine is not None and mine.pop(connection, 0) is None and not mine:
            del self._of[connection.user]

    # ── who does not read ─────────────────────────────────────────────────────────────────────────────────────────

    def stall(self, connection: TrackedConnection) -> None:
        """Note that much of its answers is unread."""
        self.stalled[connection] = self.second
        connection.unsent_bytes = connection.unread_bytes
        user = connection.user
        if connection not in self._of.get(user, {}):
            return
        self._count_unsent(connection, user, connection.unsent_bytes)
        while self._unsent.get(user, 0) > MAX_UNSENT_BYTES_OF_ONE or self._unsent_of_all > MAX_UNSENT_BYTES:
            slow = next((one for one in self.stalled if one.unsent_of == user), None)
            if slow is None:
                return
            self.note("closed connections: a user does not read so many answers", user)
            self.unstall(slow)
            slow.drop()

    def unstall(self, connection: TrackedConnection) -> None:
        """Note that its peer has read them, or that it is about to end."""
        if self.stalled.pop(connection, None) is not None and connection.unsent_of:
            self._count_unsent(connection, "", -connection.unsent_bytes)

    def _count_unsent(self, connection: TrackedConnection, user: str, amount: int) -> None:
        whose = user or connection.unsent_of
        connection.unsent_of = user
        self._unsent_of_all += amount
        left = self._unsent.get(whose, 0) + amount
        if left > 0:
            self._unsent[whose] = left
        else:
            self._unsent.pop(whose, None)

    # ── the clock ─────────────────────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        """Check all timers: a second has passed."""
        self.second += 1
        for connection in self._since(self.heads, HEAD_S):
            self.note("closed connections: no request came in time", connection.where)
            connection.cut(TooSlowError(f"no complete request head arrived within {HEAD_S} s"))
        for table in (self.idle, self.idle_private):
            for connection in self._since(table, KEEP_ALIVE_S):
                connection.cut()
        for connection in self._since(self.bodies, BODY_S):
            self._judge_body(connection)
        for connection in self._since(self.stalled, STALL_S):
            self._judge_reader(connection)
        if self.second % SWEEP_S == 0:
            for connection in self.open:
                if connection.closing:
                    self.closing.setdefault(connection, self.second)
        for connection in self._since(self.closing, CLOSE_S):
            self._judge_closing(connection)
        for freed in self.freed:
            freed()
        self._log_streaks()

    def _since(self, table: dict[TrackedConnection, int], seconds: int) -> list[TrackedConnection]:
        """Those that have stood there for so long."""
        return list(_first(table, self.second - seconds))

    def _judge_body(self, connection: TrackedConnection) -> None:
        came = connection.body_bytes - connection.counted_bytes
        if came < BODY_BYTES and not connection.waits_for_us:
            self.note("closed connections: a body came too slowly", connection.where)
            connection.cut(TooSlowError(f"{came} bytes of the request's body arrived within {BODY_S} s"))
        else:
            connection.counted_bytes = connection.body_bytes
            del self.bodies[connection]  # to its end: the table is in the order of its times
            self.bodies[connection] = self.second

    def _judge_reader(self, connection: TrackedConnection) -> None:
        unsent = connection.unread_bytes
        if connection.unsent_bytes - unsent < STALL_BYTES:
            self.note("closed connections: their answers were not read", connection.user or connection.where)
            connection.drop()
        else:
            self.unstall(connection)
            self.stall(connection)

    def _judge_closing(self, connection: TrackedConnection) -> None:
        if not connection.unread_bytes:
            connection.drop()
            return
        if connection not in self.stalled:
            self.stall(connection)
        self.closing[connection] = self.closing.pop(connection) + CLOSE_S

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, what: str, where: str, why: str = "") -> None:
        """Log it: at once, or, if the same was logged a moment ago, later and with a count."""
        streak = self._streaks.get(what)
        if streak is not None:
            streak.count += 1
            return
        self._streaks[what] = _Streak(self.second)
        self._log.warning(what, peer=where, reason=why, open=len(self.open))

    def _log_streaks(self) -> None:
        for what, streak in list(self._streaks.items()):
            if self.second - streak.since < STREAK_S:
                continue
            if streak.count:
                self._log.warning(what, times=streak.count, seconds=STREAK_S, open=len(self.open))
                streak.since, streak.count = self.second, 0
            else:
                del self._streaks[what]


class _Streak:
    """Something that is happening again and again."""

    def __init__(self, since: int) -> None:
        self.since = since
        """When it was last logged, in ticks."""
        self.count = 0
        """How often it has happened since."""


def _first(table: dict[TrackedConnection, int], until: int) -> Iterator[TrackedConnection]:
    for connection, since in table.items():
        if since > until:
            return
        yield connection
