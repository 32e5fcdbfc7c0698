"""How many slots a session wants now, and the thread that says so to HAL and to the broker.

A session grows at once and shrinks late: the most that was wanted within the last seconds holds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from hal.client.sessions.core import connect
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

    def __init__(self, least: int, most: int, keep_s: float = KEEP_S) -> None:
        """Args:
        least: slots that are wanted whatever there is to do; at least one is.
        most: wanted at most.
        """
        self._least, self._most = max(least, 1), most
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


class Overseer:
    """Asks the broker how many tasks there are, and wants as many slots; over a connection of its own."""

    def __init__(
        self,
        session: SessionFile,
        wanted: Wanted,
        want: Callable[[int], None],
        why_none: Callable[[], str] = lambda: "",
        give_up: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """
        Args:
            want: tells HAL how many slots are wanted.
            why_none: asks HAL why there will be no slots any more; '': there may be.
            give_up: called with that, when tasks wait for them.
        Raises:
            UnreachableError, HALError: the broker does not answer.
        """
        self._session = session
        self.durable = bool(session.journal)
        self._link, _ = connect(session)
        self._wanted, self._want = wanted, want
        self._why_none, self._give_up = why_none, give_up
        self._ask_s = 0.0
        """HAL is not asked before then whether slots may come."""
        self._told = 0
        """How many HAL was told to want; 0: none yet."""
        self._again_s = 0.0
        """HAL is not asked before then."""
        self._asking = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._oversee, name="hal-session-demand", daemon=True)

    def begin(self, told: int) -> None:
        """Begin; HAL wants so many now."""
        self._told = told
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
        """Leave the session, and the number of its slots, as they are."""
        self._end_thread()
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

    def _tell(self, slots: int) -> None:
        """Let HAL want so many slots, or as many of them as it takes."""
        while slots != self._told:
            try:
                self._want(slots)
            except HALError as error:
                self._again_s = time.monotonic() + REFUSED_S
                if not isinstance(error, ConflictError) or slots < self._told:
                    return  # its controller is away, or the job ends
                slots = self._told + (slots - self._told) // 2  # a limit leaves room for fewer
            else:
                self._told = slots

    def _are_gone(self) -> bool:
        """Whether there will be no slots any more; then everything that waits for them has failed."""
        if time.monotonic() < self._ask_s:
            return False
        self._ask_s = time.monotonic() + ASK_S
        try:
            reason = self._why_none()
        except HALError:
            return False  # its controller is away
        if reason:
            self._give_up(reason)
        return bool(reason)

    def _oversee(self) -> None:
        heard_s = time.monotonic()
        while not self._stop.wait(LOOK_S):
            found = self.numbers()
            if found is None:
                if self.durable and time.monotonic() < heard_s + RECONNECT_S:
                    continue
                return
            heard_s = time.monotonic()
            if found.unanswered and not found.slots and self._are_gone():
                return
            slots = self._wanted.slots(found.unanswered, time.monotonic())
            if slots != self._told and time.monotonic() >= self._again_s:
                self._tell(slots)
            if found.slots > slots:
                with contextlib.suppress(HALError):
                    self._link.send(RetireSlots(keep=slots))
