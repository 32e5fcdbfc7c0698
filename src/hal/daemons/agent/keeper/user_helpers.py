"""The helpers of users other than the keeper's own: started when a user's first step arrives, ended when idle.

Each is one user's for good, so no process of HAL ever changes to a user for a single step. A user has one helper as
long as it keeps up, and more if steps wait. What one user does to their helpers delays nobody else: room, restarts and
refusals are kept by user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hal.daemons.agent.keeper.helper_link import MAX_OUTSTANDING, HelperLink

MAX_USER_HELPERS: Final = 256
"""Helpers of all users together; a step that would need one more is refused."""
MAX_WARM: Final = 32
"""Beyond this many, the one that has been idle longest ends before another is started."""
IDLE_MS: Final = 60_000
"""An idle helper ends after this."""
MAX_AGE_MS: Final = 3_600_000
"""One that is idle ends after this in any case: the user's groups may have changed."""
MANY_WAITING: Final = MAX_OUTSTANDING // 2
"""Steps that wait at each helper of a user when another is started."""
UNKNOWN_MS: Final = 60_000
"""How long a user whom the node does not serve is refused without being looked up again."""
MAX_UNKNOWN: Final = 1_024
"""Such users that are remembered."""
RESPAWN_MS: Final = (100, 5_000)
"""First and longest delay before a dead helper of a user is replaced; it doubles while they keep dying."""
HEALTHY_MS: Final = 10_000
"""After this long without a death the delay is reset."""

Start = Callable[[str, bool], HelperLink | None]


class Lane(NamedTuple):
    """Whose helpers: of a user's guarded steps, or of the others."""

    user: str
    guarded: bool


class _Trouble:
    """How the helpers of a user have died lately."""

    __slots__ = ("delay_ms", "last_ms", "until_ms")

    def __init__(self) -> None:
        self.delay_ms = RESPAWN_MS[0]
        self.last_ms = 0
        self.until_ms = 0


class UserHelpers:
    """All helpers of users."""

    def __init__(self, start: Start, most: int) -> None:
        """Args:
        start: starts a helper for a user, guarded or not; None: it could not.
        most: helpers of one user that are started because steps wait.
        """
        self._start = start
        self._most = most
        self.links: dict[int, HelperLink] = {}
        """By the pid of their recorder or guard."""
        self._lanes: dict[Lane, list[HelperLink]] = {}
        self._started_ms: dict[int, int] = {}
        self._unknown: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._trouble: OrderedDict[str, _Trouble] = OrderedDict()

    def of(self, user: str, *, guarded: bool) -> list[HelperLink]:
        """Return the helpers of a user that take steps."""
        return [link for link in self._lanes.get(Lane(user, guarded), ()) if not link.retiring]

    def unguarded(self) -> Iterator[HelperLink]:
        """Return the helpers of all users whose steps need no guard."""
        for lane, links in self._lanes.items():
            if not lane.guarded:
                yield from links

    def refusal(self, user: str, boot_ms: int) -> str:
        """Return why nothing is run for a user, as their helper has found out lately; '' if nothing is known."""
        until_ms, text = self._unknown.get(user, (0, ""))
        return text if boot_ms < until_ms else ""

    def refuse(self, user: str, text: str, boot_ms: int) -> None:
        """Remember that nothing is run for a user."""
        self._unknown[user] = (boot_ms + UNKNOWN_MS, text)
        self._unknown.move_to_end(user)
        while len(self._unknown) > MAX_UNKNOWN:
            self._unknown.popitem(last=False)

    def room(self, user: str, boot_ms: int) -> int:
        """Return how many more steps of a user may be sent now."""
        if self.refusal(user, boot_ms):
            return MAX_OUTSTANDING  # to be told so
        lanes = [links for guarded in (False, True) if (links := self.of(user, guarded=guarded))]
        if not lanes:
            return MAX_OUTSTANDING if boot_ms >= self._until_ms(user) else 0
        return max(0, min(sum(MAX_OUTSTANDING - len(link.outstanding) for link in links) for links in lanes))

    def choose(self, user: str, boot_ms: int, *, guarded: bool) -> HelperLink | None:
        """Return the helper for the next step of a user, which may have been started for it; None if there is none."""
        links = self.of(user, guarded=guarded)
        least = min(links, key=_load, default=None)
        if least is not None and (len(links) >= self._most or len(least.outstanding) < MANY_WAITING):
            return least
        if boot_ms < self._until_ms(user) or not self._make_room(must=least is None):
            return least
        link = self._start(user, guarded)
        if link is None:
            self.died_early(user, boot_ms)
            return least
        self.links[link.pid] = link
        self._lanes.setdefault(Lane(user, guarded), []).append(link)
        self._started_ms[link.pid] = boot_ms
        return link

    def forget(self, pid: int) -> HelperLink | None:
        """Remove a helper by the pid of its recorder or guard; None if it is no user's."""
        link = self.links.pop(pid, None)
        if link is None:
            return None
        self._started_ms.pop(pid, None)
        for lane, links in list(self._lanes.items()):
            if link in links:
                links.remove(link)
                if not links:
                    del self._lanes[lane]
        return link

    def adopt_worker(self, link: HelperLink, pid: int, helper: int) -> None:
        """Its recorder has died: the helper continues without it."""
        self.links[helper] = self.links.pop(pid)
        self._started_ms[helper] = self._started_ms.pop(pid)
        link.pid = helper

    def died_early(self, user: str, boot_ms: int) -> None:
        """A helper of a user has died, or could not be started: the next one is started a little later."""
        trouble = self._trouble.setdefault(user, _Trouble())
        self._trouble.move_to_end(user)
        while len(self._trouble) > MAX_UNKNOWN:
            self._trouble.popitem(last=False)
        if boot_ms - trouble.last_ms > HEALTHY_MS:
            trouble.delay_ms = RESPAWN_MS[0]
        trouble.last_ms = boot_ms
        trouble.until_ms = boot_ms + trouble.delay_ms
        trouble.delay_ms = min(RESPAWN_MS[1], 2 * trouble.delay_ms)

    def end_idle(self, boot_ms: int) -> None:
        """End those that have been idle for long, or have become old."""
        for link in list(self.links.values()):
            if _is_idle(link):
                link.idle_since_ms = link.idle_since_ms or boot_ms
                old = boot_ms - self._started_ms[link.pid] > MAX_AGE_MS
                if old or link.retiring or boot_ms - link.idle_since_ms > IDLE_MS:
                    self._end(link)
            else:
                link.idle_since_ms = 0

    def next_ms(self, boot_ms: int) -> int | None:
        """When a helper may be started that could not be started before, by the boot clock."""
        return min((one.until_ms for one in self._trouble.values() if one.until_ms > boot_ms), default=None)

    def _make_room(self, *, must: bool) -> bool:
        """Whether one more may be started; one that is idle may have been ended for it.

        Args:
            must: the user has none.
        """
        if len(self.links) < MAX_WARM:
            return True
        idle = min(
            (link for link in self.links.values() if link.idle_since_ms and _is_idle(link)),
            key=_idle_since,
            default=None,
        )
        if idle is not None:
            self._end(idle)
            return True
        return must and len(self.links) < MAX_USER_HELPERS

    def _end(self, link: HelperLink) -> None:
        """Let an idle helper end; its process is forgotten when it has."""
        link.retiring = True
        link.close()

    def _until_ms(self, user: str) -> int:
        trouble = self._trouble.get(user)
        return 0 if trouble is None else trouble.until_ms


def _load(link: HelperLink) -> int:
    return len(link.outstanding) + len(link.running)


def _idle_since(link: HelperLink) -> int:
    return link.idle_since_ms


def _is_idle(link: HelperLink) -> bool:
    """Whether it has nothing to do, and every end that it reported is in the keeper's own journal."""
    return link.open and link.greeted and not link.busy and not link.unsettled and not link.strays
