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
from hal.client.sessions.reconnection import RECONNECT_S
from hal.core.model.errors import ConflictError, HALError
from hal.runtime.session_file import SessionFile
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import SESSION_CLOSED, AskNumbers, EndSession, RetireSlots, SessionNumbers

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


class Overseer:
    """Asks the broker how many tasks there are, and wants as many slots; over a connection of its own."""

    def __init__(
        self,
        session: SessionFile,
        groups: Sequence[Group] = (),
        give_up: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """
        Args:
            groups: the slots, by shape.
            give_up: called with the reason when tasks wait for slots that will never be there.
        Raises:
            UnreachableError, HALError: the broker does not answer.
        """
        self._session = session
        self.durable = bool(session.journal)
        self._link, _ = connect(session)
        self._groups = {group.shape: group for group in groups}
        self._give_up = give_up
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
        with self._asking:
            for _ in range(2):
                try:
                    self._link.send(AskNumbers(slots=slots))
                    for frame in self._link.receive():
                        if isinstance(frame, SessionNumbers):
                            return frame
                except HALError:
                    pass
                if not self._dial_again():
                    break
        return None

    def leave(self) -> None:
        """Leave the session as it is, with slots for what was submitted."""
        self._end_thread()
        if self._groups and (found := self.numbers()) is not None:
            self._adapt(found)
        self._link.close()

    def _end_thread(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join()

    def end(self) -> bool:
        """Tell the broker that the session is over; returns whether it has heard it."""
        self._end_thread()
        heard = self._told_end() or (self._dial_again() and self._told_end())
        self._link.close()
        return heard

    def _told_end(self) -> bool:
        heard = False
        try:
            self._link.send(EndSession())
            while frames := self._link.receive():
                heard = heard or any(isinstance(one, Goodbye) and one.code == SESSION_CLOSED for one in frames)
        except HALError:
            pass  # it is gone already
        return heard

    def _dial_again(self) -> bool:
        """The broker of a durable session may have been replaced."""
        if not self.durable:
            return False
        try:
            link, _ = connect(self._session)
        except HALError:
            return False
        self._link.close()
        self._link = link
        return True

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
            found = self.numbers()
            if found is None:
                if self.durable and time.monotonic() < heard_s + RECONNECT_S:
                    continue
                return
            heard_s = time.monotonic()
            if not self._adapt(found):
                return

    def _adapt(self, found: SessionNumbers) -> bool:
        """Let HAL run as many slots as are wanted; False: there will be none, and everything has failed."""
        known = [(self._groups[one.shape], one) for one in found.shapes if one.shape in self._groups]
        if self._are_gone([group for group, one in known if one.wanted and not one.slots]):
            return False
        for group, one in known:
            slots = group.wanted.slots(-(-one.wanted // group.threads), time.monotonic())
            if slots != group.told and time.monotonic() >= self._again_s[group.shape]:
                self._tell(group, slots)
            if one.slots > slots * group.threads:
                with contextlib.suppress(HALError):
                    self._link.send(RetireSlots(keep=slots * group.threads, shape=group.shape))
        return True
