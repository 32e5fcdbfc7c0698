"""Pools: tasks that the same slots may run, and whose turn it is among these. Pure.

There is one for each shape of the session's slots, and one for each slot, of tasks whose key binds them to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hal.planes.sessions.blocks import TaskRange
    from hal.planes.sessions.slots import Slot

MAX_KEYS: Final = 65_536
"""Keys whose worker a broker remembers; beyond, that is forgotten which was not used for longest."""


class Pool:
    """Tasks for one shape of slots, or for one slot.

    Attributes:
        shape: of its slots; '' is that of the session itself.
        waiting_tasks: of clients that are not pressed.
        unanswered: tasks without a key that have not ended.
        busy_keys: keys with tasks that have not ended.
        hungry: slots that are sent more work if there is any, in the order in which it is their turn; always empty for
            the pool of one slot.
        idle: its slots that have nothing to run; always empty for the pool of one slot, as is the next one.
        laden: its slots that have more than they run.
        slot: whose pool it is; None: it is that of a shape.
    """

    __slots__ = ("busy_keys", "hungry", "idle", "laden", "shape", "slot", "unanswered", "waiting_tasks")

    def __init__(self, shape: str = "", slot: Slot | None = None) -> None:
        self.shape = shape
        self.slot = slot
        self.waiting_tasks = 0
        self.unanswered = 0
        self.busy_keys = 0
        self.hungry: OrderedDict[Slot, None] = OrderedDict()
        self.idle: dict[Slot, None] = {}
        self.laden: dict[Slot, None] = {}

    def note_load(self, slot: Slot) -> None:
        """One of its slots has got tasks, or has reported some."""
        held = slot.held_tasks
        if held:
            self.idle.pop(slot, None)
        else:
            self.idle[slot] = None
        if held > 1:
            self.laden[slot] = None
        else:
            self.laden.pop(slot, None)

    def remove_slot(self, slot: Slot) -> None:
        """One of its slots is gone."""
        for slots in (self.hungry, self.idle, self.laden):
            slots.pop(slot, None)

    @property
    def has_idle_slot(self) -> bool:
        """Whether one of its slots would run something, and nothing waits. O(1): idle slots that get nothing are about
        to leave."""
        return not self.waiting_tasks and any(slot in self.hungry for slot in self.idle)


class Home:
    """Where the tasks of one key run.

    Attributes:
        pool: of the shape of its slot.
        slot: None: there is none yet.
        begun: that slot was sent tasks of the key, and may keep state of it.
        tasks: that have not ended.
        waiting: those of them that wait, in the order in which those of one client and urgency run.
        users: numbers of the clients that have used the key.
    """

    __slots__ = ("begun", "key", "pool", "slot", "tasks", "users", "waiting")

    def __init__(self, pool: Pool, key: str) -> None:
        self.pool = pool
        self.key = key
        self.slot: Slot | None = None
        self.begun = False
        self.tasks = 0
        self.waiting: OrderedDict[TaskRange, None] = OrderedDict()
        self.users: set[int] = set()


class Homes:
    """All of them, by shape and key; the one that was not used for longest first."""

    def __init__(self, most: int = MAX_KEYS) -> None:
        self._most = most
        self._homes: OrderedDict[tuple[str, str], Home] = OrderedDict()
        self._of_user: dict[int, set[tuple[str, str]]] = {}
        self._of_slot: dict[Slot, dict[Home, None]] = {}
        self._not_begun: dict[Slot, dict[Home, None]] = {}

    def use(self, pool: Pool, key: str, user: int) -> Home:
        """The home of a key that a client uses now."""
        name = (pool.shape, key)
        home = self._homes.get(name)
        if home is None:
            if len(self._homes) >= self._most:
                self._forget_oldest()
            home = self._homes[name] = Home(pool, key)
        else:
            self._homes.move_to_end(name)
        home.users.add(user)
        self._of_user.setdefault(user, set()).add(name)
        return home

    def forget_user(self, user: int) -> None:
        """A client is gone: keys that no other one has used are nowhere at home any more."""
        for name in self._of_user.pop(user, ()):
            home = self._homes.get(name)
            if home is not None:
                home.users.discard(user)
                if not home.users:
                    self._forget(name)

    def settle(self, home: Home, slot: Slot) -> None:
        """A key that is at home nowhere is at home in a slot."""
        home.slot = slot
        slot.keys += 1
        self._of_slot.setdefault(slot, {})[home] = None
        self._not_begun.setdefault(slot, {})[home] = None

    def unsettle(self, home: Home) -> None:
        """A key is at home nowhere."""
        slot, home.slot, home.begun = home.slot, None, False
        if slot is not None:
            slot.keys -= 1
            self._of_slot[slot].pop(home)
            self._not_begun[slot].pop(home, None)

    def note_begun(self, home: Home, *, begun: bool) -> None:
        """Its slot was sent tasks of the key, or has returned all of them."""
        home.begun = begun
        if home.slot is not None:
            homes = self._not_begun[home.slot]
            if begun:
                homes.pop(home, None)
            else:
                homes[home] = None

    def move_out(self, slot: Slot) -> None:
        """A slot is gone, or leaves: its keys are at home nowhere. O(its keys)."""
        for home in list(self._of_slot.get(slot, ())):
            self.unsettle(home)
        self._of_slot.pop(slot, None)
        self._not_begun.pop(slot, None)

    def make_room(self, slots: Sequence[Slot]) -> list[tuple[Home, Slot]]:
        """A slot came: so many keys as are its share are at home nowhere, of those whose slots have no state of them.
        O(slots + these keys).

        Args:
            slots: of its shape, the new one included.
        Returns: these keys, and the slots that had them.
        """
        keys = sum(slot.keys for slot in slots)
        share = -(-keys // len(slots))
        found: list[tuple[Home, Slot]] = []
        for slot in sorted(slots, key=_keys, reverse=True):
            homes = self._not_begun.get(slot)
            while homes and len(found) < share and slot.keys * len(slots) >= keys:
                home = next(iter(homes))
                self.unsettle(home)
                found.append((home, slot))
        return found

    def _forget_oldest(self) -> None:
        """Forget one that nobody waits for; there may be none."""
        name = next((name for name, home in self._homes.items() if not home.tasks), None)
        if name is not None:
            for user in self._homes[name].users:
                self._of_user[user].discard(name)
            self._forget(name)

    def _forget(self, name: tuple[str, str]) -> None:
        self.unsettle(self._homes.pop(name))


def _keys(slot: Slot) -> int:
    return slot.keys
