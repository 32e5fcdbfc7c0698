"""Commits that are flushed later: there at once for every process, and on the disk when `flush` has returned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hal.core.model import EventKind, HALError
from hal.store import AppendEvents, FlushFailed, Group, MemoryDatabase, NewEvent, Store, StoreError


def group(name: str) -> Group:
    event = NewEvent(at_ms=1, kind=EventKind.CONTROLLER_STARTED, cause="test", trace_id=name, jobs=[], payload={})
    return Group(name, 1, [AppendEvents([event])])


def test_a_group_that_is_not_flushed_is_there_for_a_reader_at_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.sqlite")
    epoch = store.take_leadership("test", 1)
    committed = store.commit(group("a"), epoch=epoch, flush=False)
    assert [e.trace_id for e in store.events()] == ["a"]
    assert store.commit_known("a")
    store.flush()
    assert store.commit(group("a"), epoch=epoch) == committed
    store.close()


def test_groups_that_were_not_flushed_survive_a_process_that_closes_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        store = Store.open(tmp_path / "s.sqlite")
        epoch = store.take_leadership("child", 1)
        for name in "abc":
            store.commit(group(name), epoch=epoch, flush=False)
        os.kill(os.getpid(), 9)
    assert os.waitpid(child, 0)[1] == 9
    store = Store.open(tmp_path / "s.sqlite")
    assert [e.trace_id for e in store.events()] == ["a", "b", "c"]
    store.close()


def test_the_flushed_log_alone_holds_every_commit(tmp_path: Path) -> None:
    """What a power failure leaves: the files as they were flushed, copied while the writer still has them open."""
    store = Store.open(tmp_path / "s.sqlite")
    epoch = store.take_leadership("test", 1)
    store.commit(group("a"), epoch=epoch, flush=False)
    store.flush()
    (tmp_path / "after").mkdir()
    for name in ("s.sqlite", "s.sqlite-wal"):
        (tmp_path / "after" / name).write_bytes((tmp_path / name).read_bytes())
    store.close()
    found = Store.open(tmp_path / "after" / "s.sqlite")
    assert [e.trace_id for e in found.events()] == ["a"]
    found.close()


def test_a_disk_that_refuses_to_flush_is_a_fault_and_not_a_refusal(tmp_path: Path) -> None:
    """`StoreError` would mean that nothing was written: the controller must not undo what is there."""
    store = Store.open(tmp_path / "s.sqlite")
    epoch = store.take_leadership("test", 1)
    log = store._database._log
    assert log is not None
    reading, writing = os.pipe()  # a pipe cannot be flushed: fdatasync says EINVAL
    os.dup2(writing, log)
    try:
        with pytest.raises(FlushFailed, match="flushing") as caught:
            store.commit(group("a"), epoch=epoch)
    finally:
        os.close(reading)
        os.close(writing)
    assert not isinstance(caught.value, StoreError)
    assert isinstance(caught.value, HALError)
    assert store.commit_known("a")
    store.close()


def test_a_store_in_memory_has_nothing_to_flush() -> None:
    store = Store.open(MemoryDatabase())
    store.commit(group("a"), epoch=store.take_leadership("test", 1))
    store.flush()
    store.close()
