"""The log reader: what a line is, which jobs are replayed, and what is said about files that are no logs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model import NotFoundError
from hal.daemons.twin.swf import Log, LogError, Workload, read_log, usable_jobs
from hal.daemons.twin.swf_lines import BAD_LINES_KEPT, careful_line, parse_lines

HEADER = "; Version: 2.2\n; MaxNodes: 64\n; MaxProcs: 128\n; Note: MaxProcs: 5 is not a header\n"


def line(
    job: object = 1, submit: object = 0, run: object = 100, allocated: object = 4, requested: object = 4,
    limit: object = 200, user: object = 7, cpu: object = -1,
) -> str:  # fmt: skip
    return f"{job} {submit} -1 {run} {allocated} {cpu} -1 {requested} {limit} -1 1 {user} -1 -1 1 -1 -1 -1"


def log_of(directory: Path, *lines: str, header: str = HEADER) -> Log:
    path = directory / "some.swf"
    path.write_text(header + "".join(f"{each}\n" for each in lines))
    return read_log(path)


def jobs_of(directory: Path, *lines: str, machine: int = 128) -> Workload:
    return usable_jobs(log_of(directory, *lines), machine)


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_line_gives_its_columns(tmp_path: Path) -> None:
    """Job number, submit, run, processors given and asked for, limit and user come from columns 1 2 4 5 8 9 12."""
    rows = log_of(tmp_path, line(job=5, submit=17, run=300, allocated=8, requested=16, limit=600, user=3)).rows
    read = (rows.line, rows.job_id, rows.submit_s, rows.run_s, rows.allocated, rows.requested, rows.requested_s)
    assert [int(column[0]) for column in read] == [5, 5, 17, 300, 8, 16, 600]
    assert rows.user.tolist() == [3]


def test_comments_and_blank_lines_are_no_jobs_wherever_they_are(tmp_path: Path) -> None:
    """Only the two job lines count; line numbers still count every line of the file."""
    log = log_of(tmp_path, line(), "", "  ; a remark", line(job=2), header="")
    assert log.rows.line.tolist() == [1, 4]
    assert log.bad_lines == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 2 3", "3 columns where 18 are expected"),
        (line().rsplit(" ", 1)[0], "17 columns where 18 are expected"),
        (line(run="abc"), "column 4: 'abc' is not a number"),
        (line(cpu="1.2.3"), "column 6: '1.2.3' is not a number"),
        (line(run="12.5"), "column 4 (run time): '12.5' is not a whole number"),
        (line(user="--5"), "column 12: '--5' is not a number"),
        (line(user="-"), "column 12: '-' is not a number"),
        (line(user="1-2"), "column 12: '1-2' is not a number"),
        (line(submit="1_000"), "column 2: '1_000' is not a number"),
        (line(submit="٣"), "column 2: '٣' is not a number"),
        (line(submit="nan"), "column 2: 'nan' is not a number"),
        (line(submit="1e400"), "column 2 (submit time): '1e400' is too large"),
        (line(submit="9" * 20), f"column 2 (submit time): '{'9' * 20}' is too large"),
        (line(submit="9" * 90), f"column 2 (submit time): '{'9' * 24}…' is too large"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    """Four header lines and one good job come before it, so it is line 6."""
    log = log_of(tmp_path, line(), text, line(job=2))
    assert [(bad.number, bad.reason) for bad in log.bad] == [(6, reason)]
    assert log.bad_lines == 1
    assert log.rows.job_id.tolist() == [1, 2]


def test_bad_lines_beyond_the_bound_are_counted_but_not_kept(tmp_path: Path) -> None:
    """The reader keeps the first BAD_LINES_KEPT of 50."""
    log = log_of(tmp_path, line(), *["nonsense"] * 50)
    assert log.bad_lines == 50
    assert [bad.number for bad in log.bad] == [6 + n for n in range(BAD_LINES_KEPT)]


def test_an_extended_line_is_read_by_its_first_18_columns(tmp_path: Path) -> None:
    """As in MetaCentrum logs: node lists and queue names follow."""
    log = log_of(tmp_path, line(user=3) + " {1241,1241} q_1d 1:ppn=64:x86_64#excl")
    assert (log.bad_lines, log.rows.user.tolist()) == (0, [3])


def test_whole_numbers_may_be_written_as_fractions(tmp_path: Path) -> None:
    """'300.0' seconds are 300 seconds; an average CPU time of 1.75 is not read at all."""
    log = log_of(tmp_path, line(run="300.0", cpu="1.75"), line(cpu="0.5"))
    assert (log.bad_lines, log.rows.run_s.tolist()) == (0, [300, 100])


def test_line_ends_of_any_system_are_read(tmp_path: Path) -> None:
    """CR LF, tabs, and no line end at the end of the file."""
    path = tmp_path / "dos.swf"
    path.write_bytes((line() + "\r\n" + line(job=2).replace(" ", "\t")).encode())
    assert read_log(path).rows.job_id.tolist() == [1, 2]


TOKENS = st.one_of(
    st.integers(-(10**13), 10**13).map(str),
    st.integers(-5, 5000).map(str),
    st.sampled_from(["-1", "0", "1.5", "2.0", "-", "--1", "1-", "+3", ".5", "5.", "1.2.3", "x", "1e3", "007", "-0"]),
)


@given(st.lists(st.lists(TOKENS, min_size=16, max_size=20).map(" ".join), max_size=8))
def test_bulk_and_careful_reading_agree(lines: list[str]) -> None:
    """Every line gets the same columns, or is bad, whether it is taken in bulk or alone."""
    rows, bad, bad_lines = parse_lines("".join(f"{each}\n" for each in lines).encode())
    alone = [careful_line(each.encode()) for each in lines]
    good = [[number, *values] for number, values in enumerate(alone, 1) if not isinstance(values, str)]
    columns = (rows.line, rows.job_id, rows.submit_s, rows.run_s, rows.allocated, rows.requested, rows.requested_s)
    assert np.column_stack([*columns, rows.user, rows.group, rows.queue]).tolist() == good
    assert [(b.number, b.reason) for b in bad] == [(n, v) for n, v in enumerate(alone, 1) if isinstance(v, str)]
    assert bad_lines == len(bad)


def test_chunks_do_not_show() -> None:
    """A log that is taken apart 200 bytes at a time gives the columns and bad lines of the whole."""
    text = "".join(f"{line(job=n) if n % 7 else 'bad'}\n" for n in range(1, 60)).encode()
    whole = parse_lines(text)
    parts = parse_lines(text, chunk_bytes=200)
    assert parts[0].line.tolist() == whole[0].line.tolist()
    assert parts[0].job_id.tolist() == whole[0].job_id.tolist()
    assert parts[1:] == whole[1:]


# ── the header ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("header", "procs"),
    [
        ("; MaxNodes: 64\n; MaxProcs: 128\n", 128),
        ("; MaxNodes: 64\n", 64),
        (";MaxProcs:128 (without the login node)\n", 128),
        ("; MaxProcs: -1\n; MaxNodes: 16\n", 16),
        ("; MaxProcs: unknown\n", None),
        ("; MaxProcs: 0\n", None),
        ("", None),
    ],
)
def test_the_machine_size_is_maxprocs_else_maxnodes(tmp_path: Path, header: str, procs: int | None) -> None:
    """A size that is not a positive whole number counts as not given."""
    assert log_of(tmp_path, line(), header=header).machine_procs == procs


# ── which jobs are replayed ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        (line(allocated=129, requested=4), "more processors than the machine"),
        (line(allocated=4, requested=129), "more processors than the machine"),
        (line(allocated=-1, requested=0), "no processors"),
        (line(run=0), "no run time"),
        (line(run=-1), "no run time"),
        (line(limit=-1), "no requested time"),
        (line(limit=0), "no requested time"),
        (line(submit=-5), "negative submit time"),
        ("1 2 3", "bad line"),
    ],
)
def test_a_line_that_cannot_be_replayed_is_dropped_and_counted(tmp_path: Path, dropped: str, reason: str) -> None:
    """The rule of the traces: each reason drops exactly that line."""
    jobs = jobs_of(tmp_path, line(job=1), dropped, line(job=3))
    assert jobs.id.tolist() == [1, 3]
    assert jobs.skipped == {reason: 1}


def test_processors_are_those_asked_for_else_those_given(tmp_path: Path) -> None:
    """8 asked for beats 4 given; nothing asked for takes what was given."""
    jobs = jobs_of(tmp_path, line(allocated=4, requested=8), line(allocated=4, requested=-1))
    assert jobs.procs.tolist() == [8, 4]


def test_a_job_is_killed_at_its_limit(tmp_path: Path) -> None:
    """A run of 500 s with a limit of 200 s lasts 200 s."""
    assert jobs_of(tmp_path, line(run=500, limit=200)).run_s.tolist() == [200]


def test_a_log_without_any_limits_plans_with_run_times(tmp_path: Path) -> None:
    """No requested time anywhere: the run time is the limit."""
    jobs = jobs_of(tmp_path, line(run=100, limit=-1), line(run=50, limit=-1))
    assert jobs.limit_s.tolist() == [100, 50]


def test_jobs_come_by_submit_time_with_ties_in_file_order(tmp_path: Path) -> None:
    """Submits 5 3 5 3 arrive as 3 3 5 5."""
    jobs = jobs_of(tmp_path, *(line(job=n, submit=s) for n, s in enumerate((5, 3, 5, 3), 1)))
    assert jobs.id.tolist() == [2, 4, 1, 3]


def test_first_keeps_the_earliest_jobs(tmp_path: Path) -> None:
    """The first two by submit time, not by place in the file."""
    log = log_of(tmp_path, *(line(job=n, submit=s) for n, s in enumerate((9, 3, 5), 1)))
    assert usable_jobs(log, 128, first=2).id.tolist() == [2, 3]


def test_scaled_arrivals_keep_the_first_submit_and_halve_every_distance_to_it(tmp_path: Path) -> None:
    """1000 1001 1003 1010 scaled by 0.5: 1000 + floor(0, 0.5, 1.5, 5)."""
    log = log_of(tmp_path, *(line(submit=s) for s in (1000, 1001, 1003, 1010)))
    assert usable_jobs(log, 128, scale_arrivals=0.5).submit_s.tolist() == [1000, 1000, 1001, 1005]


def test_a_log_with_no_usable_job_says_why(tmp_path: Path) -> None:
    """Everything is larger than the machine: the message counts the reasons."""
    with pytest.raises(LogError, match=r"nothing to replay.*on 2 processors.*2 with more processors than the machine"):
        jobs_of(tmp_path, line(), line(), machine=2)


# ── files that are no logs ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gzip_log_is_told_by_its_content_not_its_name(tmp_path: Path) -> None:
    """A compressed log named .swf is read as one named .swf.gz is."""
    for name in ("packed.swf", "packed.swf.gz"):
        (tmp_path / name).write_bytes(gzip.compress((HEADER + line()).encode()))
        assert read_log(tmp_path / name).machine_procs == 128


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"; MaxProcs: 5\n", "has comments but no job lines"),
        (bytes(range(256)) * 4, "is not a text file"),
        ("a log\n".encode("utf-16"), "is not a text file"),
        (b"hello\nworld\n", "no valid job line: 2 bad, the first is line 1: 1 columns"),
        (gzip.compress(line().encode() * 999, mtime=0)[:-9], "is truncated"),
        (gzip.compress(line().encode() * 999, mtime=0)[:40], "is truncated"),
        (b"\x1f\x8b\x08\x00garbage garbage garbage", "not a sound gzip file"),
        (gzip.compress(line().encode(), mtime=0)[:-8] + b"\0" * 8, "not a sound gzip file"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"PK\x03\x04rest", "is zip-compressed"),
        (b"\xfd7zXZ\x00rest", "is xz-compressed"),
    ],
)
def test_a_file_that_is_no_log_gives_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    """The error names the file and what is wrong with it."""
    path = tmp_path / "odd.swf.gz"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message) as caught:
        read_log(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    """Neither is a traceback."""
    with pytest.raises(NotFoundError, match="there is no file"):
        read_log(tmp_path / "nothing.swf")
    with pytest.raises(LogError, match="is a directory"):
        read_log(tmp_path)
