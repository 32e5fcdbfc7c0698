"""How many slots a session wants now, and the thread that says so to HAL and to the broker.

A session grows at once and shrinks late: the most that was wanted within the last seconds holds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hal.client.sessions.broker_connection import connect
from hal.client.sessions.moves import Spare, kept_slots, moves_between, spare_slots
from hal.client.sessions.reconnection import RECONNECT_S
from hal.client.sessions.sums import sum_of
from hal.core.model.errors import ConflictError, HALError, UnreachableError
from hal.runtime.session_file import SessionFile, shards_of
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSION_CLOSED,
    AskNumbers,
    EndSession,
    MoveSlots,
    RetireSlots,
    SessionFrame,
    SessionNumbers,
)

LOOK_S: Final = 0.2
"""How often the broker is asked."""
ASK_S: Final = 1.0
"""While tasks wait and there is no slot, HAL is asked so often whether one may come."""
REFUSED_S: Final = 2.0
"""After HAL refused a number of slots it is asked again so much later."""
KEEP_S: Final = 15.0
"""How long slots without a task are kept."""


class Wanted:
    """The rule. Pure."""

    def __init__(self, least: int, most: int, keep_s: float = KEEP_S, *, floor: int = 1) -> None:
        """Args:
        least: slots that are wanted whatever there is to do, and `floor` at least.
        most: wanted at most.
        """
        self._least, self._most = max(least, floor), most
        self._keep_s = keep_s
        self._seen: list[tuple[float, int]] = []
        """When so many tasks were unanswered, most first: only what is more than everything later."""

    def slots(self, unanswered: int, now_s: float) -> int:
        """How many slots are wanted, now that so many tasks have not ended. O(1) on average."""
        need = min(max(unanswered, self._least), self._most)
        while self._seen and self._seen[-1][1] <= need:
            self._seen.pop()
        self._seen.append((now_s, need))
        while len(self._seen) > 1 and self._seen[0][0] < now_s - self._keep_s:
            del self._seen[0]
        return self._seen[0][1]


class Group(Protocol):
    """The slots of one shape; see `SlotGroup`."""

    shape: str
    wanted: Wanted
    threads: int
    told: int

    def want(self, count: int) -> None: ...

    def why_none(self) -> str: ...


class BrokerLink:
    """A connection to one broker, over which it is asked how the session goes and told what becomes of its slots.

    Attributes:
        shard: its number, in a session with several.
    """

    def __init__(self, session: SessionFile, shard: int = 0) -> None:
        """
        Raises:
            UnreachableError, HALError: it does not answer.
        """
        self.shard = shard
        self._session = session
        self._link, _ = connect(session)

    def ask(self, *, slots: bool) -> None:
        """Ask for the numbers."""
        with contextlib.suppress(HALError):  # which `answer` notices
            self._link.send(AskNumbers(slots=slots))

    def answer(self, *, slots: bool) -> SessionNumbers | None:
        """Wait for what was asked for; None: the broker is gone."""
        for _ in range(2):
            try:
                for frame in self._link.receive():
                    if isinstance(frame, SessionNumbers):
                        return frame
            except HALError:
                pass
            if not self.dial_again():
                break
            self.ask(slots=slots)
        return None

    def send(self, frame: SessionFrame) -> None:
        """Tell the broker something, if it is there."""
        with contextlib.suppress(HALError):
            self._link.send(frame)

    def tell_end(self) -> bool:
        """Tell the broker that the session is over; returns whether it may have heard it."""
        try:
            self._link.send(EndSession())
        except HALError:
            return False
        return True

    def hears_end(self) -> bool:
        """After `tell_end`: whether the broker has said so, too."""
        heard = False
        try:
            while frames := self._link.receive():
                heard = heard or any(isinstance(one, Goodbye) and one.code == SESSION_CLOSED for one in frames)
        except HALError:
            pass  # it is gone already
        return heard

    def dial_again(self) -> bool:
        """The broker of a durable session may have been replaced."""
        if not self._session.journal:
            return False
        try:
            link, _ = connect(self._session)
        except HALError:
            return False
        self._link.close()
        self._link = link
        return True

    def close(self) -> None:
        """End the connection."""
        self._link.close()


class Overseer:
    """Asks the brokers how many tasks there are, and wants as many slots; over connections of its own."""

    def __init__(
        self,
        session: SessionFile,
        groups: Sequence[Group] = (),
        give_up: Callable[[str], None] = lambda _reason: None,
        note_slots: Callable[[str, dict[int, int]], None] = lambda _shape, _slots: None,
    ) -> None:
        """
        Args:
            groups: the slots, by shape.
            give_up: called with the reason when tasks wait for slots that will never be there.
            note_slots: called with how many slots of a shape each broker has, if there are several.
        Raises:
            UnreachableError, HALError: no broker answers.
        """
        self.durable = bool(session.journal)
        self._brokers = _links(session)
        self._groups = {group.shape: group for group in groups}
        self._give_up = give_up
        self._note_slots = note_slots
        self._spare: dict[str, list[Spare]] = {}
        """Of brokers, by shape, at the last look."""
        self._over: set[int] = set()
        """Brokers that have heard that the session is over."""
        self._ask_s = 0.0
        """HAL is not asked before then whether slots may come."""
        self._again_s = dict.fromkeys(self._groups, 0.0)
        """HAL is not told how many slots of a shape are wanted before then."""
        self._asking = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._oversee, name="hal-session-demand", daemon=True)

    def begin(self) -> None:
        """Begin to look."""
        self._thread.start()

    def numbers(self, *, slots: bool = False) -> SessionNumbers | None:
        """How the session goes; None: the broker is gone."""
        found = self._ask(slots=slots)
        return sum_of(list(found.values())) if found else None

    def _ask(self, *, slots: bool = False) -> dict[int, SessionNumbers]:
        """What the brokers answer that are there, by their number."""
        found: dict[int, SessionNumbers] = {}
        with self._asking:
            for broker in self._brokers:
                broker.ask(slots=slots)
            for broker in list(self._brokers):
                numbers = broker.answer(slots=slots)
                if numbers is not None:
                    found[broker.shard] = numbers
                elif not self.durable and len(self._brokers) > 1:
                    broker.close()
                    self._brokers.remove(broker)
        return found

    def leave(self) -> None:
        """Leave the session as it is, with slots for what was submitted."""
        self._end_thread()
        if self._groups and (found := self._ask()):
            self._adapt(found)
        self._close()

    def _close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def _end_thread(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join()

    def end(self) -> bool:
        """Tell the brokers that the session is over; returns whether they have heard it."""
        self._end_thread()
        told = [(broker, broker.tell_end()) for broker in self._brokers if broker.shard not in self._over]
        for broker, sent in told:
            if (sent and broker.hears_end()) or (broker.dial_again() and broker.tell_end() and broker.hears_end()):
                self._over.add(broker.shard)
        self._close()
        return len(self._over) == len(self._brokers)

    def _tell(self, group: Group, slots: int) -> None:
        """Let HAL run so many slots, or as many of them as it takes."""
        while slots != group.told:
            try:
                group.want(slots)
            except HALError as error:
                self._again_s[group.shape] = time.monotonic() + REFUSED_S
                if not isinstance(error, ConflictError) or slots < group.told:
                    return  # its controller is away, or the job ends
                slots = group.told + (slots - group.told) // 2  # a limit leaves room for fewer

    def _are_gone(self, groups: Sequence[Group]) -> bool:
        """Whether there will be no slots of these shapes any more; then everything that waits has failed."""
        if not groups or time.monotonic() < self._ask_s:
            return False
        self._ask_s = time.monotonic() + ASK_S
        for group in groups:
            try:
                reason = group.why_none()
            except HALError:
                return False  # its controller is away
            if reason:
                self._give_up(reason)
                return True
        return False

    def _oversee(self) -> None:
        heard_s = time.monotonic()
        while not self._stop.wait(LOOK_S):
            found = self._ask()
            if not found:
                if self.durable and time.monotonic() < heard_s + RECONNECT_S:
                    continue
                return
            heard_s = time.monotonic()
            if not self._adapt(found):
                return

    def _adapt(self, found: dict[int, SessionNumbers]) -> bool:
        """Let HAL run as many slots as are wanted; False: there will be none, and everything has failed.

        Args:
            found: what each broker says.
        """
        told = sum_of(list(found.values()))
        known = [(self._groups[one.shape], one) for one in told.shapes if one.shape in self._groups]
        if self._are_gone([group for group, one in known if one.wanted and not one.slots]):
            return False
        for group, one in known:
            slots = group.wanted.slots(-(-one.wanted // group.threads), time.monotonic())
            if slots != group.told and time.monotonic() >= self._again_s[group.shape]:
                self._tell(group, slots)
            if len(self._brokers) > 1:
                self._level(group, found, one.slots - slots * group.threads)
            elif one.slots > slots * group.threads:
                self._brokers[0].send(RetireSlots(keep=slots * group.threads, shape=group.shape))
        return True

    def _level(self, group: Group, found: dict[int, SessionNumbers], surplus: int) -> None:
        """Let slots of one shape leave that are too many, and others go to where tasks wait.

        Args:
            surplus: how many are too many, of all brokers.
        """
        shape = group.shape
        links = {broker.shard: broker for broker in self._brokers}
        counts = {shard: one.slots for shard, numbers in found.items() for one in numbers.shapes if one.shape == shape}
        spare, before = spare_slots(found, shape), self._spare.get(shape, [])
        self._spare[shape] = spare
        self._note_slots(shape, counts)
        for shard, keep in kept_slots(spare, counts, surplus).items():
            links[shard].send(RetireSlots(keep=keep, shape=shape))
        if surplus <= 0:
            for move in moves_between(before, spare, group.threads):
                links[move.origin].send(MoveSlots(count=move.slots, shard=move.target, shape=shape))


def _links(session: SessionFile) -> list[BrokerLink]:
    """To all brokers of a durable session, of others to those that answer.

    Raises:
        UnreachableError, HALError: there is none.
    """
    if not session.shards:
        return [BrokerLink(session)]
    found: list[BrokerLink] = []
    failure: UnreachableError | None = None
    for shard, file in enumerate(shards_of(session)):
        try:
            found.append(BrokerLink(file, shard))
        except UnreachableError as error:
            failure = error
    if failure is not None and (session.journal or not found):
        for link in found:
            link.close()
        raise failure
    return found
