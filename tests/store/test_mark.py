"""The mark: a store that was lost, emptied or set back is refused, and ids of jobs go on (faults 1)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.core.model import EventKind, HALError, StoreError
from hal.store import AppendEvents, FlushFailed, Group, InsertJobs, NewEvent, PutMeta, Store, StoreLost, StoreMark
from hal.store.mark import INSTANCE
from tests.store.rows import job

BOOT = "d426b370-1308-480c-8e01-81bbc7abd6c9"


def opened(path: Path, boot: str = BOOT) -> Store:
    """The store in that directory, with its mark."""
    return Store.open(path / "s.sqlite", mark=StoreMark(path / "mark", boot))


def used(path: Path, groups: int = 3) -> None:
    """A store in which so many groups were committed and flushed."""
    store = opened(path)
    epoch = store.take_leadership("test", 1)
    store.commit(Group("first", 1, [PutMeta({INSTANCE: "a" * 32})]), epoch=epoch)
    for number in range(1, groups):
        store.commit(_group(number), epoch=epoch)
    store.close()


def _group(number: int) -> Group:
    event = NewEvent(at_ms=1, kind=EventKind.CONTROLLER_STARTED, cause="test", trace_id="t", jobs=[], payload={})
    return Group(f"g{number}", 1, [AppendEvents([event])])


def _remove(path: Path) -> None:
    for file in path.glob("s.sqlite*"):
        file.unlink()


def _empty(path: Path) -> None:
    _remove(path)
    (path / "s.sqlite").touch()


def _another(path: Path) -> None:
    _remove(path)
    (path / "other").mkdir()
    store = opened(path / "other")
    epoch = store.take_leadership("test", 1)
    store.commit(Group("first", 1, [PutMeta({INSTANCE: "b" * 32})]), epoch=epoch)
    store.close()
    shutil.copy(path / "other" / "s.sqlite", path / "s.sqlite")


@pytest.mark.parametrize("lose", [_remove, _empty, _another])
def test_a_store_that_is_gone_empty_or_another_one_is_refused(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """Nothing is made in its place, and it is refused again the next time."""
    used(tmp_path)
    lose(tmp_path)
    before = sorted(file.name for file in tmp_path.iterdir())
    for _ in range(2):
        with pytest.raises(StoreLost, match="store") as caught:
            opened(tmp_path)
        assert "--new-store" in caught.value.hint
    after = {file.name for file in tmp_path.iterdir()} - {"s.sqlite-wal", "s.sqlite-shm"}
    assert sorted(after) == before


def test_an_old_copy_is_refused_and_the_right_one_is_not(tmp_path: Path) -> None:
    """A copy after 3 groups, put back after 5."""
    used(tmp_path)
    shutil.copy(tmp_path / "s.sqlite", tmp_path / "copy")
    store = opened(tmp_path)
    epoch = store.take_leadership("test", 1)
    for number in (3, 4):
        store.commit(_group(number), epoch=epoch)
    store.close()
    right = (tmp_path / "s.sqlite").read_bytes()
    _remove(tmp_path)
    shutil.copy(tmp_path / "copy", tmp_path / "s.sqlite")
    with pytest.raises(StoreLost, match="ends with group 3, not 5"):
        opened(tmp_path)
    (tmp_path / "s.sqlite").write_bytes(right)
    opened(tmp_path).close()


def test_a_log_that_was_removed_is_noticed(tmp_path: Path) -> None:
    """A process that was killed leaves its groups in the log; it goes, and with it the tables."""
    child = os.fork()
    if child == 0:
        used(tmp_path, groups=1)
        store = opened(tmp_path)
        epoch = store.take_leadership("child", 1)
        store.commit(_group(7), epoch=epoch, flush=False)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert StoreMark(tmp_path / "mark", BOOT).seen.committed == 2
    (tmp_path / "s.sqlite-wal").unlink()
    with pytest.raises(StoreError):
        opened(tmp_path)


def test_a_power_failure_may_take_back_what_was_not_flushed(tmp_path: Path) -> None:
    """Group 4 was committed, 3 flushed: in another boot a store with 3 is as it must be, one with 2 is not."""
    used(tmp_path)
    mark = StoreMark(tmp_path / "mark", BOOT)
    mark.record_commit(4)
    mark.close()
    with pytest.raises(StoreLost, match="not 4"):
        opened(tmp_path)
    opened(tmp_path, boot="another").close()
    mark = StoreMark(tmp_path / "mark", "another")
    mark.record_flush(5)
    mark.close()
    with pytest.raises(StoreLost, match="not 5"):
        opened(tmp_path, boot="third")


def test_a_person_may_say_that_another_store_is_right_and_ids_of_jobs_go_on(tmp_path: Path) -> None:
    """Jobs 1 to 41 were accepted; in the empty store the next is 42."""
    used(tmp_path)
    store = opened(tmp_path)
    epoch = store.take_leadership("test", 1)
    store.commit(Group("jobs", 1, [InsertJobs([job(41)])]), epoch=epoch)
    store.close()
    _remove(tmp_path)
    mark = StoreMark(tmp_path / "mark", BOOT)
    mark.accept_another()
    mark.close()
    store = opened(tmp_path)
    assert store.load().last_job_id == 41
    store.close()


def test_a_store_that_is_removed_under_a_running_controller_is_noticed_at_the_next_flush(tmp_path: Path) -> None:
    """What is written into a file without a name is lost: no answer may rest on it."""
    used(tmp_path)
    store = opened(tmp_path)
    epoch = store.take_leadership("test", 1)
    store.commit(_group(8), epoch=epoch, flush=False)
    _remove(tmp_path)
    with pytest.raises(FlushFailed, match="removed or replaced"):
        store.flush()
    store.close()


@pytest.mark.parametrize("text", ["", "rubbish", "a b c d e", "\x00" * 160])
def test_a_mark_that_cannot_be_read_demands_nothing(tmp_path: Path, text: str) -> None:
    """A disk that lost it must not keep HAL from starting."""
    used(tmp_path)
    (tmp_path / "mark").write_text(text)
    opened(tmp_path).close()
    assert StoreMark(tmp_path / "mark", BOOT).seen.instance == "a" * 32


def test_a_mark_that_is_a_link_or_a_fifo_is_not_followed(tmp_path: Path) -> None:
    """It would hang the start, or write elsewhere."""
    used(tmp_path)
    (tmp_path / "mark").unlink()
    os.mkfifo(tmp_path / "mark")
    opened(tmp_path).close()
    (tmp_path / "mark").unlink()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "mark").symlink_to(tmp_path / "victim")
    opened(tmp_path).close()
    assert (tmp_path / "victim").read_text() == "precious"


def test_what_is_wrong_is_an_error_of_the_store(tmp_path: Path) -> None:
    """A damaged file says so in one sentence, with what to do."""
    (tmp_path / "s.sqlite").write_bytes(os.urandom(4096))
    with pytest.raises(HALError, match="damaged") as caught:
        opened(tmp_path)
    assert "hal restore" in caught.value.hint
