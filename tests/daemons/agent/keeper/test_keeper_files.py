"""Files that a crash may leave half done: outputs that were being cut, journals with damage in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.deleted_outputs import MAX_REMEMBERED, DeletedOutputs, Deletion
from hal.daemons.agent.keeper.helper_journal import HelperJournal
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.old_outputs import DAY_MS, EVERY_MS, FORGOTTEN_AT_ONCE, OldOutputs
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.agent.keeper.ports import Booted, Dropped, Ended, EpochSeen, Instant, LogPart, SpawnFailed
from hal.daemons.agent.keeper.watch import read_clocks
from hal.wire.frames.agent_keeper import ForgetPiece, Stream

STEP = StepId(1, 0, 1, 0)
BOUND = 100_000


def written(root: Path, size: int) -> tuple[OutputFiles, Path, bytes]:
    outputs = OutputFiles(root)
    outputs.prepare(STEP)
    path = root / "1" / "0.1.0.stdout"
    data = b"".join(b"%09d\n" % n for n in range(size // 10))
    path.write_bytes(data)
    return outputs, path, data


def test_an_output_that_was_settled_reads_the_same_in_every_later_process(tmp_path: Path) -> None:
    """Cut to its bound, read by its true offsets from a fresh start."""
    outputs, path, data = written(tmp_path, 1_000_000)
    assert "bytes were dropped" in outputs.settle(STEP, BOUND)
    part = OutputFiles(tmp_path).read(STEP, Stream.STDOUT, 0, 1 << 20)
    assert part.size == 1_000_000
    assert part.data == data[part.offset :]
    assert BOUND <= len(part.data) < BOUND + 4096
    assert path.stat().st_blocks * 512 < BOUND + 8192


def test_a_cut_that_did_not_happen_after_its_note_changes_no_offset(tmp_path: Path) -> None:
    """The keeper died between writing the note and cutting: the file's own positions still count."""
    outputs, path, data = written(tmp_path, 500_000)
    Path(f"{path}.kept").write_text("cut 400000 100000\n")
    part = outputs.read(STEP, Stream.STDOUT, 450_000, 10)
    assert (part.offset, part.data, part.size) == (450_000, data[450_000:450_010], 500_000)


def test_an_emptied_output_goes_on_counting(tmp_path: Path) -> None:
    """Where no hole can be punched the file was emptied: what is written since follows what was."""
    outputs, path, _ = written(tmp_path, 0)
    Path(f"{path}.kept").write_text("emptied 7000 0\n")
    path.write_bytes(b"after")
    part = outputs.read(STEP, Stream.STDOUT, 0, 100)
    assert (part.offset, part.data, part.size) == (7_000, b"after", 7_005)


def test_forgetting_one_attempt_leaves_its_neighbours(tmp_path: Path) -> None:
    """Attempt 1 of task 0 goes; attempt 11 of task 0 and task 10 stay; the last one takes the directory along."""
    outputs = OutputFiles(tmp_path)
    steps = [StepId(1, 0, 1, 0), StepId(1, 0, 11, 0), StepId(1, 10, 1, 0)]
    for step in steps:
        outputs.prepare(step)
    outputs.forget([ForgetPiece(1, 1, 0, 1)])
    assert not outputs.work()
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == [
        "0.11.0.stderr",
        "0.11.0.stdout",
        "10.1.0.stderr",
        "10.1.0.stdout",
    ]
    outputs.forget([ForgetPiece(1, 11, 0, 1), ForgetPiece(1, 1, 0, 11)])
    assert not outputs.work()
    assert not (tmp_path / "1").exists()


def test_a_forgotten_job_leaves_nothing_and_is_reported_once(tmp_path: Path) -> None:
    """Files of all its attempts, and those that it has made beside them; other jobs stay."""
    outputs = OutputFiles(tmp_path)
    for step in (StepId(1, 0, 1, 0), StepId(1, 3, 2, 1), StepId(2, 0, 1, 0)):
        outputs.prepare(step)
    (tmp_path / "1" / "result").write_text("x")
    outputs.forget([ForgetPiece(1), ForgetPiece(9)], request=5)
    assert outputs.forgotten() == []
    assert not outputs.work()
    assert (outputs.forgotten(), outputs.forgotten()) == ([5], [])
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_a_request_that_names_the_same_job_again_is_reported_for_itself(tmp_path: Path) -> None:
    """The controller sent it twice, as the node was away in between."""
    outputs = OutputFiles(tmp_path)
    outputs.prepare(STEP)
    outputs.forget([ForgetPiece(1, 1, 0, 1), ForgetPiece(1, 2, 0, 1)], request=5)
    outputs.forget([ForgetPiece(1, 1, 0, 1)], request=6)
    outputs.forget([], request=7)
    outputs.work()
    assert sorted(outputs.forgotten()) == [5, 6, 7]


def test_old_outputs_go_whatever_the_controller_says(tmp_path: Path) -> None:
    """By the newest file of a job; a job that runs keeps its own."""
    now = read_clocks()
    outputs = with_jobs(tmp_path / "steps", {1: 10, 2: 10, 3: 2}, now)
    looked(OldOutputs(outputs, 5 * DAY_MS, 0), now, running=2)
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["2", "3"]


def test_an_output_that_the_node_has_deleted_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """A later keeper knows when and why, too; an output in which nothing was written is empty."""
    now = read_clocks()
    outputs = with_jobs(tmp_path / "steps", {1: 10, 3: 2}, now)
    looked(OldOutputs(outputs, 5 * DAY_MS, 0), now)
    later = OutputFiles(tmp_path / "steps")
    gone = LogPart(0, b"", 0, deleted_ms=now.wall_ms, deleted_by="outputs_days = 5")
    assert later.read(STEP, Stream.STDOUT, 0, 100) == gone
    assert later.read(StepId(3, 0, 2, 0), Stream.STDOUT, 0, 100) == LogPart(0, b"", 0)


def test_what_is_remembered_of_deleted_outputs_is_bounded_and_survives_damage(tmp_path: Path) -> None:
    """The newest of them; a line that makes no sense is passed over."""
    deleted = DeletedOutputs(tmp_path / "deleted")
    deleted.add([(job, "outputs_days = 5") for job in range(MAX_REMEMBERED)], 7)
    deleted.add([(MAX_REMEMBERED, 'outputs_size = "1GiB"')], 8)
    with (tmp_path / "deleted").open("a") as file:
        file.write("x y z\n5")
    again = DeletedOutputs(tmp_path / "deleted")
    assert [again.find(job) for job in (0, 1, MAX_REMEMBERED)] == [
        None, Deletion(7, "outputs_days = 5"), Deletion(8, 'outputs_size = "1GiB"')
    ]  # fmt: skip


def test_the_longest_unwritten_outputs_go_when_there_are_too_many(tmp_path: Path) -> None:
    """Each job has 64 KiB: two of three fit into 150 KiB."""
    now = read_clocks()
    outputs = with_jobs(tmp_path / "steps", {1: 2, 2: 9, 3: 1}, now)
    looked(OldOutputs(outputs, 0, 150 << 10), now)
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["1", "3"]
    assert outputs.read(StepId(2, 0, 1, 0), Stream.STDOUT, 0, 100).deleted_by == 'outputs_size = "150KiB"'


def test_safety_a_job_that_runs_here_again_before_its_turn_keeps_its_output(tmp_path: Path) -> None:
    """An array whose next task begins while thousands of old jobs are deleted: what was chosen is looked at again."""
    now = read_clocks()
    outputs = with_jobs(tmp_path / "steps", dict.fromkeys(range(1, FORGOTTEN_AT_ONCE + 2), 10), now)
    running: set[int] = set()
    old = OldOutputs(outputs, 5 * DAY_MS, 0)
    old.advance(now, running.__contains__)
    while not old._doomed:
        old.advance(now, running.__contains__)
    running.add(last := list(old._doomed)[-1])
    while old._doomed:
        old.advance(now, running.__contains__)
    while outputs.work():
        pass
    assert [path.name for path in (tmp_path / "steps").iterdir()] == [str(last)]


def with_jobs(root: Path, ages: dict[int, int], now: Instant) -> OutputFiles:
    """Jobs with 64 KiB of output, written so many days ago; and something that is no job's."""
    outputs = OutputFiles(root)
    for job, days in ages.items():
        outputs.prepare(StepId(job, 0, 1, 0))
        (root / str(job) / "0.1.0.stdout").write_bytes(b"x" * (64 << 10))
        at_s = now.wall_ms / 1000 - days * 86_400
        for path in ((root / str(job)), *(root / str(job)).iterdir()):
            os.utime(path, (at_s, at_s))
    return outputs


def looked(old: OldOutputs, now: Instant, running: int = 0) -> None:
    """Look through all, as the keeper's loop does, an hour later."""
    old.advance(now, lambda job: job == running)
    due = old.next_boot_ms
    while old.next_boot_ms - due < EVERY_MS:
        due = old.next_boot_ms
        old.advance(Instant(now.wall_ms, due), lambda job: job == running)
    old._outputs.work()


@pytest.mark.parametrize("cut", [1, 5, 9, 12])
def test_a_torn_record_is_cut_off_and_appending_goes_on(tmp_path: Path, cut: int) -> None:
    """Whatever part of the last record was written, the ones before it are read, and later ones too."""
    journal = FileJournal(tmp_path / "j")
    journal.append([Booted("b"), EpochSeen(3)])
    size = journal.size_bytes()
    journal.append([Dropped((STEP,), "already-ended")])
    journal.close()
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[: size + cut])
    journal = FileJournal(tmp_path / "j")
    assert journal.load() == [Booted("b"), EpochSeen(3)]
    journal.append([EpochSeen(4)])
    assert journal.load() == [Booted("b"), EpochSeen(3), EpochSeen(4)]
    assert journal.notes == []
    journal.close()


def test_damage_in_the_middle_is_set_aside_and_said(tmp_path: Path) -> None:
    """A flipped bit: what stands before it is used, the whole file is kept for people to look at."""
    journal = FileJournal(tmp_path / "j")
    journal.append([Booted("b")])
    size = journal.size_bytes()
    journal.append([EpochSeen(number) for number in range(50)])
    journal.close()
    data = bytearray((tmp_path / "j").read_bytes())
    data[size + 9] ^= 0xFF
    (tmp_path / "j").write_bytes(data)
    journal = FileJournal(tmp_path / "j")
    assert journal.load() == [Booted("b")]
    assert "damaged bytes were set aside" in journal.notes[0]
    assert (tmp_path / "j.damaged").read_bytes() == data
    journal.close()


def test_a_helpers_journal_is_read_line_by_line_and_garbage_is_passed_over(tmp_path: Path) -> None:
    """A line torn by a full disk and a last line without its end do not count; a later read takes in what was added."""
    path = tmp_path / "helper-1.log"
    path.write_text("H 10 20 boot 1\nI 1.0.1.0 s3:2\nP 1.0.1.0 99 5 6\nX 1 1.0.1\nX 2 1.0.1.0 0 7 1 2 3 4 5 0")
    journal = HelperJournal(path)
    journal.read()
    seen = journal.steps[STEP]
    assert (journal.pid, journal.start_ticks, journal.boot_id, journal.closed) == (10, 20, "boot", False)
    assert seen.slot == "s3:2"
    assert seen.spawned is not None
    assert (seen.spawned.pid, seen.spawned.wall_ms, seen.spawned.boot_ms) == (99, 5, 6)
    assert seen.end is None
    with path.open("a") as file:
        file.write("\nF 3 2.0.1.0 127 8 no such program 'x y'\nC\n")
    journal.read()
    end = journal.steps[STEP].end
    assert isinstance(end, Ended)
    assert (end.status, end.usage.max_rss_bytes, end.leftover) == (0, 3 << 10, False)
    failed = journal.steps[StepId(2, 0, 1, 0)].end
    assert isinstance(failed, SpawnFailed)
    assert (failed.code, failed.message) == (127, "no such program 'x y'")
    assert journal.closed


def test_outputs_of_several_steps_are_read_at_once_as_each_alone(tmp_path: Path) -> None:
    """Of two jobs; one has written nothing, and of one there is no directory."""
    outputs, path, data = written(tmp_path, 1_000)
    steps = [STEP, StepId(1, 1, 1, 0), StepId(2, 0, 1, 0), StepId(1, 2, 1, 0)]
    (path.parent / "2.1.0.stdout").write_bytes(b"other")
    many = outputs.read_many(steps, Stream.STDOUT, -20, 1 << 10, 1 << 20)
    assert many == [outputs.read(step, Stream.STDOUT, -20, 1 << 10) for step in steps]
    assert [part.data for part in many] == [data[-20:], b"", b"", b"other"]


def test_outputs_that_are_together_too_long_come_in_part(tmp_path: Path) -> None:
    """At least one, and none beyond the bound."""
    outputs, _, data = written(tmp_path, 1_000)
    found = outputs.read_many([STEP] * 5, Stream.STDOUT, 0, 400, 1_000)
    assert [part.data for part in found] == [data[:400]] * 2
    assert len(outputs.read_many([STEP] * 5, Stream.STDOUT, 0, 400, 100)) == 1
