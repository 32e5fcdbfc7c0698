"""Advice as the engine holds it: by key space the names that any kind has a value for, by kind a column of values.

Pure. A part of an update costs O(its keys); believing it, what it changes and one copy of the column. Names that no
kind uses any more are forgotten a few at a time, so that nothing large is ever freed at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.kernels.structures.arrays import Ints, Mask
from hal.core.kernels.structures.layout import INF
from hal.core.model.advice import MAX_KEYS, MAX_KINDS, KeySpace

Floats: TypeAlias = NDArray[np.float64]
"""Values of advice; NaN = none."""
Key: TypeAlias = str | int
"""Job ids are numbers, all other keys are names."""

FORGOTTEN_PER_NAME: Final = 2
"""For each key of an update, so many keys that no kind uses are forgotten: faster than they can become more."""
FEWEST_FORGOTTEN: Final = 1_024
FIRST_NAMES: Final = 64


class Names:
    """The keys of one key space. A slot is a key's index in the values of every kind of this space."""

    def __init__(self) -> None:
        self.slots: dict[Key, int] = {}
        """Slot of every key that some kind has, or had not long ago."""
        self.keys: list[Key | None] = []
        """By slot; None where the slot is free."""
        self.uses: Ints = np.zeros(FIRST_NAMES, np.int64)
        """By slot, with room for more: kinds that have a value, and parts of updates that are not complete."""
        self.free: list[int] = []
        """Slots to be used again."""
        self.unused: deque[Ints] = deque()
        """Slots that had no use when they were put here; some may be here twice, or be in use again."""
        self.changes = 0
        """Counts keys that came or went: slots that were looked up hold as long as it stays the same."""

    def enter(self, keys: Sequence[Key]) -> Ints:
        """The slot of each key, with one use more."""
        self.forget(max(FORGOTTEN_PER_NAME * len(keys), FEWEST_FORGOTTEN))
        slots = self.find(keys)
        new = np.flatnonzero(slots < 0)
        if new.size:
            self._name([keys[at] for at in new.tolist()])
            slots = self.find(keys)
        np.add.at(self.uses, slots, 1)
        return slots

    def find(self, keys: Sequence[Key]) -> Ints:
        """The slot of each key; -1 where no kind has it."""
        slot_of = self.slots.get
        return np.fromiter((slot_of(key, -1) for key in keys), np.int64, len(keys))

    def release(self, slots: Ints) -> None:
        """One use less of each of these slots."""
        np.subtract.at(self.uses, slots, 1)
        unused = slots[self.uses[slots] == 0]
        if unused.size:
            self.unused.append(unused)

    def forget(self, most: int) -> None:
        """Forget at most so many keys that have no use."""
        while self.unused and most > 0:
            some = self.unused.popleft()
            if some.size > most:
                self.unused.appendleft(some[most:])
                some = some[:most]
            most -= some.size
            for slot in some[self.uses[some] == 0].tolist():
                key = self.keys[slot]
                if key is not None:
                    del self.slots[key]
                    self.keys[slot] = None
                    self.free.append(slot)
                    self.changes += 1

    def _name(self, keys: list[Key]) -> None:
        """Give slots to keys that have none: free ones first."""
        fresh = list(dict.fromkeys(keys))
        again = [self.free.pop() for _ in range(min(len(self.free), len(fresh)))]
        for slot, key in zip(again, fresh, strict=False):
            self.keys[slot] = key
        first = len(self.keys)
        self.keys.extend(fresh[len(again) :])
        self.slots.update(zip(fresh, (*again, *range(first, len(self.keys))), strict=True))
        if len(self.keys) > self.uses.shape[0]:
            room = 2 * len(self.keys)
            self.uses = np.concatenate([self.uses, np.zeros(room - self.uses.shape[0], np.int64)])
        self.changes += 1


class Kind(Struct, frozen=True):
    """One kind of advice. Replaced as a whole by every update, so that a copy of a state shares it.

    values: by slot of its key space, NaN = none; slots beyond its end have none. keys: how many have a value.
    """

    space: KeySpace
    version: int
    expires_ms: int
    values: Floats
    keys: int


class Part(Struct, frozen=True):
    """Some keys of an update that is not complete."""

    slots: Ints
    values: Floats


class Changed(Struct, frozen=True):
    """What an update or a withdrawal changed: slots of a key space whose value is another one now."""

    space: KeySpace
    slots: Ints


class Advice:
    """The part of a `State` that holds advice."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        """By name, what plugins may read."""
        self.names: dict[KeySpace, Names] = {space: Names() for space in KeySpace}
        """Keys, by key space."""
        self.staged: dict[str, tuple[int, KeySpace, list[Part]]] = {}
        """By kind: version, key space and parts of an update that is not complete."""
        self.first_expiry_ms = INF
        """When the first of all kinds expires."""
        self.changes = 0
        """Counts updates that changed a value: what was read before holds as long as it stays the same."""
        self.due: Mask = np.zeros(0, np.bool_)
        """By slot of JOBS: whether the order has to be asked for the job's key again."""
        self.due_jobs = 0
        """How many those are."""
        self.moves_offsets = False
        """Whether a kind changed that the order reads for whole buckets, since the last pass began."""

    @property
    def awaits_pass(self) -> bool:
        """Whether the order in use reads something that has changed: another job may be the first now."""
        return self.due_jobs > 0 or self.moves_offsets

    @property
    def keys(self) -> int:
        """Keys of all kinds together, with those of updates that are not complete."""
        staged = sum(part.slots.size for _version, _space, parts in self.staged.values() for part in parts)
        return staged + sum(kind.keys for kind in self.kinds.values())

    def refusal(self, kind: str, space: KeySpace, keys: int) -> str:
        """Why an update with so many keys cannot be held; '' when it can."""
        held = self.kinds.get(kind)
        if held is not None and held.space is not space:
            return f"advice '{kind}' has {held.space} as keys, not {space}: withdraw it before its keys are others"
        if held is None and kind not in self.staged and len(self.kinds.keys() | self.staged.keys()) >= MAX_KINDS:
            return f"{MAX_KINDS} kinds of advice are held, and no more can be: withdraw one that nobody needs"
        if self.keys + keys > MAX_KEYS:
            return (
                f"{self.keys} keys of advice are held, and at most {MAX_KEYS} can be, with the {keys} of this update: "
                "withdraw a kind, or put fewer keys"
            )
        return ""

    def stage(self, kind: str, space: KeySpace, version: int, keys: Sequence[Key], values: Floats) -> None:
        """Hold a part of an update until it is complete; parts of another version are dropped."""
        staged = self.staged.get(kind)
        if staged is not None and (staged[0] != version or staged[1] is not space):
            self.drop_staged(kind)
            staged = None
        if staged is None:
            staged = self.staged[kind] = (version, space, [])
        staged[2].append(Part(self.names[space].enter(keys), values))

    def drop_staged(self, kind: str) -> None:
        """Forget the parts of an update that is not complete."""
        _version, space, parts = self.staged.pop(kind, (0, KeySpace.NODES, []))
        for part in parts:
            self.names[space].release(part.slots)

    def complete(self, kind: str, expires_ms: int, *, whole: bool) -> Changed:
        """Let what is staged be true: instead of what was held (`whole`), else over it."""
        version, space, parts = self.staged.pop(kind)
        names = self.names[space]
        held = self.kinds.get(kind)
        old = np.full(names.uses.shape[0], np.nan)
        if held is not None:
            old[: held.values.shape[0]] = held.values
        new = np.full(old.shape[0], np.nan) if whole else old.copy()
        for part in parts:
            new[part.slots] = part.values
        touched = np.concatenate([part.slots for part in parts])
        some = np.arange(old.shape[0]) if whole else _distinct(touched, old.shape[0])
        before, after = old[some], new[some]
        had, has = ~np.isnan(before), ~np.isnan(after)
        names.uses[some[has & ~had]] += 1
        names.release(touched)
        names.release(some[had & ~has])
        keys = (0 if held is None else held.keys) + int(has.sum()) - int(had.sum())
        self.kinds[kind] = Kind(space, version, expires_ms, new, keys)
        self._note_expiry()
        return self._changed(space, some[(before != after) & (had | has)])

    def withdraw(self, kind: str) -> Changed:
        """Forget a kind."""
        self.drop_staged(kind)
        held = self.kinds.pop(kind)
        slots = np.flatnonzero(~np.isnan(held.values))
        self.names[held.space].release(slots)
        self._note_expiry()
        return self._changed(held.space, slots)

    def _note_expiry(self) -> None:
        self.first_expiry_ms = min((held.expires_ms for held in self.kinds.values()), default=INF)

    def _changed(self, space: KeySpace, slots: Ints) -> Changed:
        self.changes += bool(slots.size)
        return Changed(space, slots)

    def values_at(self, kind: str, space: KeySpace, slots: Ints) -> Floats:
        """The values of a kind at these slots (-1 = no key); NaN where there is none, or the kind has other keys."""
        found = np.full(slots.shape, np.nan)
        held = self.kinds.get(kind)
        if held is not None and held.space is space:
            there = (slots >= 0) & (slots < held.values.shape[0])
            found[there] = held.values[slots[there]]
        return found

    def set_due(self, slots: Ints) -> None:
        """The order has to be asked for the keys of these jobs (slots of JOBS) again."""
        room = self.names[KeySpace.JOBS].uses.shape[0]
        if self.due.shape[0] < room:
            self.due = np.concatenate([self.due, np.zeros(room - self.due.shape[0], np.bool_)])
        fresh = slots[~self.due[slots]]
        # A use of its own: a job that no kind has any more is still to be asked for.
        self.names[KeySpace.JOBS].uses[fresh] += 1
        self.due[fresh] = True
        self.due_jobs += fresh.size

    def due_some(self, most: int) -> Ints:
        """Job ids of at most so many that are due."""
        names = self.names[KeySpace.JOBS]
        return np.array([names.keys[slot] for slot in np.flatnonzero(self.due)[:most].tolist()], np.int64)

    def set_done(self, jobs: Ints) -> None:
        """The keys of these jobs are as the order has them."""
        names = self.names[KeySpace.JOBS]
        slots = names.find(jobs.tolist())
        slots = slots[slots >= 0]
        slots = slots[self.due[slots]]
        self.due[slots] = False
        self.due_jobs -= slots.size
        names.release(slots)

    def all_done(self) -> None:
        """Nothing is due, because the keys of all jobs were asked for."""
        slots = np.flatnonzero(self.due)
        self.due[slots] = False
        self.due_jobs = 0
        self.names[KeySpace.JOBS].release(slots)
        self.moves_offsets = False

    def next_expiry_ms(self, kinds: frozenset[str]) -> int:
        """When the first of these kinds expires; INF when none is held."""
        return min((self.kinds[kind].expires_ms for kind in kinds if kind in self.kinds), default=INF)

    def expired(self, now_ms: int) -> list[str]:
        """Kinds whose time is over."""
        if now_ms < self.first_expiry_ms:
            return []
        return sorted(kind for kind, held in self.kinds.items() if held.expires_ms <= now_ms)

    def items(self, kind: str) -> Iterator[tuple[Key, float]]:
        """Keys and values of a kind, in the order of their slots."""
        held = self.kinds[kind]
        for slot in np.flatnonzero(~np.isnan(held.values)).tolist():
            yield self.key_at(held.space, slot), float(held.values[slot])

    def key_at(self, space: KeySpace, slot: int) -> Key:
        """The key of a slot that is in use."""
        key = self.names[space].keys[slot]
        assert key is not None
        return key

    def for_questions(self) -> Advice:
        """For a copy of the state to which no advice is fed: what is held now stays."""
        other = Advice()
        other.kinds = {name: replace(kind, expires_ms=INF) for name, kind in self.kinds.items()}
        other.names, other.changes = self.names, self.changes
        return other


def _distinct(slots: Ints, room: int) -> Ints:
    """Each of these slots once, ascending; without sorting them."""
    there = np.zeros(room, np.bool_)
    there[slots] = True
    return np.flatnonzero(there)
