"""A writer that dies, or a power failure, at any point: what was returned is there, nothing half done is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from hal.blobs import Blobs, open_blobs
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.model.errors import NotFoundError
from hal.runtime.virtual_directory import Holder, VirtualDisk
from hal.runtime.virtual_loop import ProcessKilledError

MAX_BYTES: Final = 3 * CHUNK_BYTES
MAX_FILES: Final = 16
LONG: Final = bytes(CHUNK_BYTES) + b"end"
KEPT: Final = b"kept"


class Crash:
    """A disk on which the writer dies before its n-th change."""

    def __init__(self, changes: int, seed: int) -> None:
        self.disk = VirtualDisk(seed)
        self.writer = Holder()
        self.stored: dict[str, bytes] = {}
        """Blobs whose names the writer was given."""
        self.pinned: set[str] = set()
        self.count = 0
        self._changes = changes
        self.disk.before = self._before

    def _before(self, call: str) -> None:
        self.count += 1
        if self.count == self._changes:
            self.writer.alive = False

    def run(self, *, flush: bool) -> bool:
        """Run the writer; returns whether it died."""
        try:
            self._write(open_blobs(self.disk.open("/blobs", self.writer), "w", **BOUNDS, flush=flush))
        except ProcessKilledError:
            self.disk.end(self.writer)
        self.disk.before = lambda call: None
        return not self.writer.alive

    def _write(self, store: Blobs) -> None:
        self._put(store, KEPT)
        kept = next(iter(self.stored))
        store.pin(kept, "job-7")
        self.pinned.add(kept)
        self._put(store, LONG)
        self._put(store, KEPT)
        with closing(store.chunks(next(name for name in self.stored if name.startswith("chunks:")))) as chunks:
            for _ in chunks:
                store.unpin(kept, "job-8")
        store.pin(kept, "job-8")
        self.pinned.discard(kept)
        store.unpin_all("job-7")
        self.pinned.add(kept)
        for number in range(2):
            self._put(store, bytes([number]) * 10)

    def _put(self, store: Blobs, data: bytes) -> None:
        self.stored[store.put(data)] = data

    def reopen(self) -> Blobs:
        """The store as the next process finds it."""
        return open_blobs(self.disk.open("/blobs", Holder()), "next", **BOUNDS)

    def leftovers(self) -> list[str]:
        root = self.disk.open("/blobs", Holder())
        kinds = ("staging", "leases")
        return [entry.name for kind in kinds for entry in root.child(kind).entries()]


BOUNDS: Final = {"max_bytes": MAX_BYTES, "max_files": MAX_FILES}


def crashes(every: int, *, power: bool, flush: bool) -> Iterator[tuple[Crash, Blobs]]:
    """Each crash of the writer, and the store as it is found afterwards."""
    changes = 1
    while (crash := Crash(changes, seed=changes)).run(flush=flush):
        if power:
            crash.disk.lose_power()
        yield crash, crash.reopen()
        changes += every


def check_consistent(crash: Crash, store: Blobs) -> None:
    """Counts are right, nothing is left over, and every blob can be stored again."""
    assert crash.leftovers() == []
    assert not store.scrub().after
    usage = store.usage()
    assert usage.pins == len(store.pins())
    evicted = store.evict(0)
    assert store.usage().size_bytes == usage.size_bytes - evicted.size_bytes
    for data in (KEPT, LONG):
        assert store.read(store.put(data)) == data


EVERY = [pytest.param(9, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("every", EVERY)
def test_safety_what_was_stored_survives_the_death_of_the_writer_at_any_point(every: int) -> None:
    """Every name that put() returned can be read, and every pin holds."""
    for crash, store in crashes(every, power=False, flush=False):
        assert {name: store.read(name) for name in crash.stored} == crash.stored
        assert crash.pinned <= {pin.blob for pin in store.pins()}
        check_consistent(crash, store)


@pytest.mark.parametrize("every", EVERY)
def test_safety_what_was_flushed_survives_a_power_failure_at_any_point(every: int) -> None:
    """In a store that flushes, the same holds when the power fails."""
    for crash, store in crashes(every, power=True, flush=True):
        assert {name: store.read(name) for name in crash.stored} == crash.stored
        assert crash.pinned <= {pin.blob for pin in store.pins()}
        check_consistent(crash, store)


@pytest.mark.parametrize("every", EVERY)
def test_safety_a_power_failure_never_changes_what_is_read(every: int) -> None:
    """In a store that does not flush, a blob is whole or missing, however its files were torn."""
    for crash, store in crashes(every, power=True, flush=False):
        for name, data in crash.stored.items():
            try:
                assert store.read(name) == data
            except NotFoundError:
                assert store.find(name) is None
        check_consistent(crash, store)


def test_safety_a_flushing_store_flushes_what_another_process_had_not() -> None:
    """The bytes are there already, and are not written again."""
    for seed in range(8):
        disk = VirtualDisk(seed)
        cache = open_blobs(disk.open("/blobs", Holder()), "cache", **BOUNDS)
        keeps = open_blobs(disk.open("/blobs", Holder()), "keeps", **BOUNDS, flush=True)
        cache.put(LONG)
        name = keeps.put(LONG)
        disk.lose_power()
        assert open_blobs(disk.open("/blobs", Holder()), "next", **BOUNDS).read(name) == LONG
