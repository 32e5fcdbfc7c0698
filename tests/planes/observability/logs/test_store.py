"""The store of log lines: pages, searches, visibility, what is read twice, bounds."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from hal.core.model import SpecError, StoreError
from hal.planes.observability.logs.lines import Batch, Line, Source, lines_of, severity_of
from hal.planes.observability.logs.store import (
    DAY_MS,
    FoundOutputs,
    LogReader,
    LogWriter,
    Outputs,
    Wanted,
    cursor_of,
    paths_of,
)
from hal.planes.observability.logs.words import parse_search
from hal.wire.frames.telemetry import Severity

NOW_MS = 1_800_000_000_000


def output(
    job: int, text: str, *, user: str = "alice", offset: int = 0, node: str = "n1", at_ms: int = NOW_MS
) -> Batch:
    """What a step of a job has printed."""
    data = text.encode()
    source = Source(node, "step", job, 0, 1, 0, "stdout", user)
    return Batch(source, list(lines_of(data, offset, at_ms)), offset + len(data))


def component(name: str, *texts: str) -> Batch:
    """What a process of HAL has logged."""
    return Batch(Source("n1", name), [Line(NOW_MS, Severity.WARNING, text) for text in texts])


def texts(directory: Path, wanted: Wanted, limit: int = 100) -> list[str]:
    """Of the first page, newest first."""
    reader = LogReader(directory)
    try:
        return [found.line.text for found in reader.page(wanted, limit=limit).lines]
    finally:
        reader.close()


def writer_of(directory: Path, max_bytes: int = 1 << 30, keep_ms: int = 0) -> LogWriter:
    return LogWriter(directory, max_bytes=max_bytes, keep_ms=keep_ms)


def test_a_search_finds_the_newest_lines_first(tmp_path: Path) -> None:
    """Of three lines two have the word."""
    writer_of(tmp_path).add([output(1, "epoch 1\nsaved\nepoch 2\n")], NOW_MS)
    assert texts(tmp_path, Wanted(search=parse_search("epoch"))) == ["epoch 2", "epoch 1"]


def test_pages_go_on_where_the_one_before_ended(tmp_path: Path) -> None:
    """Seven lines in pages of three: 3 + 3 + 1, each once."""
    writer_of(tmp_path).add([output(1, "".join(f"line {at}\n" for at in range(7)))], NOW_MS)
    reader, before, found = LogReader(tmp_path), 0, []
    for _ in range(3):
        page = reader.page(Wanted(search=parse_search("line")), limit=3, before=before)
        found += [one.line.text for one in page.lines]
        before = page.before
    assert found == [f"line {at}" for at in reversed(range(7))]
    assert before == 0


def test_a_phrase_is_found_over_many_lines_that_only_have_its_words(tmp_path: Path) -> None:
    """5,000 lines have both words, one has them side by side."""
    lines = ["shard loading\n"] * 5_000
    lines[17] = "loading shard\n"
    writer_of(tmp_path).add([output(1, "".join(lines))], NOW_MS)
    assert texts(tmp_path, Wanted(search=parse_search('"loading shard"'))) == ["loading shard"]


def test_safety_a_user_finds_only_lines_of_their_own_jobs(tmp_path: Path) -> None:
    """Neither another's output nor what HAL's processes log."""
    writer_of(tmp_path).add(
        [output(1, "secret plan\n", user="bob"), output(2, "plan\n"), component("controller", "plan of bob")], NOW_MS
    )
    assert texts(tmp_path, Wanted(search=parse_search("plan"), user="alice")) == ["plan"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(job=2), ["b"]),
        (Wanted(node="n2"), ["a"]),
        (Wanted(component="keeper"), ["k"]),
        (Wanted(severity=Severity.WARNING), ["k"]),
        (Wanted(since_ms=NOW_MS + 5), ["b"]),
        (Wanted(until_ms=NOW_MS), []),
    ],
)
def test_lines_are_chosen_by_what_they_come_from(tmp_path: Path, wanted: Wanted, expected: list[str]) -> None:
    """Each choice leaves one of three lines."""
    batches = [output(1, "a\n", node="n2"), component("keeper", "k"), output(2, "b\n", at_ms=NOW_MS + 5)]
    writer_of(tmp_path).add(batches, NOW_MS)
    assert texts(tmp_path, wanted) == expected


def test_what_is_sent_twice_is_kept_once(tmp_path: Path) -> None:
    """An agent that was started again sends an output from its beginning."""
    writer = writer_of(tmp_path)
    writer.add([output(1, "a\nb\n")], NOW_MS)
    assert writer.add([output(1, "a\nb\nc\n")], NOW_MS) == 1
    assert texts(tmp_path, Wanted(job=1)) == ["c", "b", "a"]


def test_what_is_sent_twice_is_kept_once_over_two_files(tmp_path: Path) -> None:
    """The newest file knows from the one before it what was read."""
    writer = writer_of(tmp_path)
    writer.add([output(1, "a\nb\n")], NOW_MS)
    writer.tend(NOW_MS + DAY_MS)
    writer.add([output(1, "a\nb\nc\n")], NOW_MS + DAY_MS)
    assert len(paths_of(tmp_path)) == 2
    assert texts(tmp_path, Wanted(job=1)) == ["c", "b", "a"]


@pytest.mark.slow
def test_safety_the_store_stays_within_its_bytes(tmp_path: Path) -> None:
    """A flood of 40 MB leaves the newest lines in the bound and a file's size more."""
    writer, offset = writer_of(tmp_path, max_bytes=16 << 20), 0
    for turn in range(40):
        text = f"turn {turn} {'x' * 90}\n" * 10_000
        batch = output(1, text, offset=offset)
        offset = batch.end
        writer.add([batch], NOW_MS)
        writer.tend(NOW_MS)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20 << 20
    assert texts(tmp_path, Wanted(), limit=1)[0].startswith("turn 39 ")


def test_lines_older_than_the_bound_go_file_by_file(tmp_path: Path) -> None:
    """What was last written three days ago is removed where two are kept."""
    writer = writer_of(tmp_path, keep_ms=2 * DAY_MS)
    writer.add([output(1, "old\n")], NOW_MS)
    writer.tend(NOW_MS + DAY_MS)
    writer.add([output(2, "new\n")], NOW_MS + DAY_MS)
    os.utime(paths_of(tmp_path)[0], (NOW_MS / 1_000, NOW_MS / 1_000))
    assert writer.tend(NOW_MS + 3 * DAY_MS) == 1
    assert texts(tmp_path, Wanted()) == ["new"]


def test_a_store_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Another writer continues in the same file, with ascending ids."""
    writer_of(tmp_path).add([output(1, "a\n")], NOW_MS)
    writer_of(tmp_path).add([output(2, "b\n")], NOW_MS)
    assert len(paths_of(tmp_path)) == 1
    assert texts(tmp_path, Wanted()) == ["b", "a"]


def test_a_damaged_file_is_one_clear_error(tmp_path: Path) -> None:
    """It names the file and what to do."""
    (tmp_path / "0000000000000001.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="0000000000000001"):
        LogReader(tmp_path).page(Wanted())


def test_a_job_is_read_whole_in_order(tmp_path: Path) -> None:
    """5,000 lines in three chunks, oldest first."""
    writer_of(tmp_path).add([output(1, "".join(f"{at}\n" for at in range(5_000))), output(2, "other\n")], NOW_MS)
    reader, after, found = LogReader(tmp_path), 0, []
    while chunk := reader.of_job(Wanted(job=1), after):
        found += [one.line.text for one in chunk]
        after = chunk[-1].id
    assert found == [str(at) for at in range(5_000)]


@pytest.mark.parametrize("text", ["x", "-1", "0", "9" * 30, "１"])
def test_a_cursor_of_somebody_elses_making_is_refused(text: str) -> None:
    """One clear error."""
    with pytest.raises(SpecError):
        cursor_of(text)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("2026-11-24 ERROR disk full", Severity.ERROR),
        ('{"level": "warn", "msg": "x"}', Severity.WARNING),
        ("Traceback (most recent call last):", Severity.ERROR),
        ("an error of measurement", Severity.INFO),
    ],
)
def test_the_severity_that_a_line_names(text: str, severity: Severity) -> None:
    """As loggers write it; a word in a sentence says nothing."""
    assert severity_of(text) is severity


def test_an_output_can_be_put_together_again() -> None:
    """Progress bars, an empty line, a line without an end, one that is too long."""
    data = b"10%\r20%\n\n" + b"y" * 20_000 + b"\nno end"
    lines = list(lines_of(data, 100, NOW_MS))
    assert "".join(one.text + ("\n" if one.whole else "") for one in lines).encode() == data
    assert [one.offset for one in lines] == [100, 108, 109, 109, 109, 20110]


def printed(task: int, attempt: int = 1, *, rank: int = 0, user: str = "alice", job: int = 7) -> Batch:
    """A line of one attempt of a task."""
    source = Source("n1", "step", job, task, attempt, rank, "stdout", user)
    return Batch(source, list(lines_of(b"x\n", 0, NOW_MS)), 2)


def found_outputs(directory: Path, asked: Outputs, job: int = 7) -> FoundOutputs:
    reader = LogReader(directory)
    try:
        return reader.outputs(job, asked)
    finally:
        reader.close()


def test_the_newest_attempt_of_each_task_is_meant_unless_another_is_named(tmp_path: Path) -> None:
    """Task 0 has run once, task 1 three times, in two files."""
    writer = writer_of(tmp_path, max_bytes=1)
    for batch in (printed(0), printed(1), printed(1, 2), printed(1, 3)):
        writer.add([batch], NOW_MS)
        writer.tend(NOW_MS)
    newest = found_outputs(tmp_path, Outputs())
    first = found_outputs(tmp_path, Outputs(attempt=1))
    assert newest.outputs.newest == {1: 3}
    assert [newest.outputs.admit(printed(*one).source) for one in ((0, 1), (1, 1), (1, 2), (1, 3))] == [
        True, False, False, True,
    ]  # fmt: skip
    assert [first.outputs.admit(printed(1, one).source) for one in (1, 3)] == [True, False]


def test_it_is_known_whether_outputs_are_of_several_tasks_or_ranks(tmp_path: Path) -> None:
    writer_of(tmp_path).add([printed(0), printed(1), printed(2, rank=0), printed(2, rank=1)], NOW_MS)
    asked = [Outputs(), Outputs(tasks=(1, 1)), Outputs(tasks=(2, 2)), Outputs(tasks=(2, 2), rank=1), Outputs(rank=5)]
    assert [found_outputs(tmp_path, one).number for one in asked] == [2, 1, 2, 1, 0]


def test_safety_another_users_output_is_there_and_not_mine(tmp_path: Path) -> None:
    writer_of(tmp_path).add([printed(0, user="bob"), printed(0, 2, user="bob")], NOW_MS)
    found = found_outputs(tmp_path, Outputs(user="alice"))
    assert (found.there, found.mine, found.number, found.outputs.newest) == (True, False, 0, {})


def test_what_hals_processes_log_about_a_job_is_no_output_of_it(tmp_path: Path) -> None:
    writer_of(tmp_path).add([Batch(Source("n1", "agent", 7), [Line(NOW_MS, Severity.INFO, "started")])], NOW_MS)
    assert found_outputs(tmp_path, Outputs(user="alice"))[:2] == (False, False)


def test_a_large_array_takes_no_memory_for_each_of_its_tasks(tmp_path: Path) -> None:
    """5,000 outputs as they were kept would be 2 MB; of the three tasks that ran again some hundred bytes."""
    again = [printed(task, 2) for task in (1, 2, 3)]
    writer_of(tmp_path).add([*(printed(task) for task in range(5_000)), *again], NOW_MS)
    reader = LogReader(tmp_path)
    reader.outputs(7, Outputs())  # opens the file
    tracemalloc.start()
    found = reader.outputs(7, Outputs())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reader.close()
    assert (found.number, len(found.outputs.newest)) == (2, 3)
    assert peak < 200_000
