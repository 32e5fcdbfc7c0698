"""Read logs in the Standard Workload Format, strictly, and convert them to the jobs to replay.

Reads files; everything after that is pure. Cost: about 0.4 s for 200,000 lines. Format:
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html; extended logs (more than 18 columns) are read by their first
18.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hal.core.model.errors import DeniedError, NotFoundError, SpecError
from hal.core.model.job import JobSpec
from hal.daemons.twin.swf_lines import BadLine, LogRows, parse_lines

IntArray = NDArray[np.int64]

MAX_LOG_BYTES = 4 << 30
"""Largest log read, uncompressed: a guard against a file that expands without end."""

MAX_SUBMIT_S = 10**11
"""Latest submit that is replayed; a line of a log may not exceed it either."""

_PACKED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
}
_HEADER_LINE = re.compile(rb"^[ \t]*;[ \t]*([A-Za-z][A-Za-z0-9_ ]*?)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_NUMBERED_LINE = re.compile(rb"^[ \t]*;[ \t]*(Queue|Group)[ \t]*:[ \t]*(\d{1,9})[ \t]+([^ \t\r\n]+)", re.MULTILINE)
_LEADING_INTEGER = re.compile(r"\s*(\d{1,11})(?![\d.])")


class LogError(SpecError):
    """A workload log that cannot be read or replayed; the message names the file and the problem."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """One log as read, before any job is dropped.

    Attributes:
        name: what the person called it; used in messages only.
        header: header comments by key ('MaxProcs', …), first value of each.
        rows: the well-formed lines, in file order.
        bad: the first bad lines, with their line numbers (1 is the first line of the file).
        bad_lines: how many bad lines there are in all.
        queue_names, group_names: what the header calls the queues and groups of these numbers.
    """

    name: str
    header: dict[str, str]
    rows: LogRows
    bad: tuple[BadLine, ...]
    bad_lines: int
    queue_names: dict[int, str] = field(default_factory=dict)
    group_names: dict[int, str] = field(default_factory=dict)

    @property
    def unix_start_s(self) -> int:
        """The instant of submit time 0, in seconds since 1970; 0 if the header does not give it (UnixStartTime)."""
        match = _LEADING_INTEGER.match(self.header.get("UnixStartTime", ""))
        return int(match.group(1)) if match else 0

    @property
    def machine_procs(self) -> int | None:
        """Processors of the machine according to the header: MaxProcs, else MaxNodes; None if it gives neither."""
        for key in ("MaxProcs", "MaxNodes"):
            match = _LEADING_INTEGER.match(self.header.get(key, ""))
            if match and int(match.group(1)) > 0:
                return int(match.group(1))
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The jobs to replay, by submit time (ties in file order). All arrays have the shape (J,).

    Attributes:
        id: the log's own job numbers (labels: they need not be unique).
        submit_s, run_s, limit_s: seconds; 0 < run_s <= limit_s.
        procs: processors asked for, 1..machine.
        user: the log's user numbers, -1 where it has none.
        skipped: reason -> how many lines were left out for it (bad lines included), only reasons that occurred.
        group, queue: the log's group and queue numbers, -1 where it has none; None where nothing is known of any job.
        asked: instead of processors alone, what jobs ask for; each kind once. kind: of each job its index there.
    """

    id: IntArray
    submit_s: IntArray
    run_s: IntArray
    limit_s: IntArray
    procs: IntArray
    user: IntArray
    skipped: dict[str, int]
    group: IntArray | None = None
    queue: IntArray | None = None
    asked: tuple[JobSpec, ...] = ()
    kind: IntArray | None = None

    @property
    def jobs(self) -> int:
        return int(self.id.size)


def read_log(path: str | Path, stream: BinaryIO | None = None) -> Log:
    """Read a log, plain or gzip-compressed (detected by its first bytes, not by its name).

    Args:
        path: the file; only its name in messages if `stream` is given.
        stream: bytes to read instead of the file (standard input).
    Raises:
        NotFoundError: there is no such file.
        DeniedError: it may not be read.
        LogError: there is nothing to replay in it: a directory, empty, truncated while compressed, binary, or without
            one well-formed line.
    """
    name = str(path)
    data = read_bytes(path, stream)
    if not data.strip():
        raise LogError(f"{name} is empty", hint="expected a workload log in the Standard Workload Format")
    nul = data.find(b"\0")
    if nul >= 0:
        raise LogError(
            f"{name} is not a text file: it has a NUL byte at offset {nul}",
            hint="expected a workload log in the Standard Workload Format, plain or .gz",
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    rows, bad, bad_lines = parse_lines(data)
    if not rows.line.size:
        if not bad_lines:
            raise LogError(f"{name} has comments but no job lines")
        first = bad[0]
        raise LogError(
            f"{name} has no valid job line: {bad_lines} bad, the first is line {first.number}: {first.reason}",
            hint="expected 18 numbers a line, as in the Standard Workload Format",
        )
    queues, groups = _numbered(data)
    return Log(name, _header(data), rows, bad, bad_lines, queues, groups)


def usable_jobs(
    log: Log,
    machine_procs: int,
    *,
    first: int | None = None,
    scale_arrivals: float = 1.0,
    what: str = "the machine",
) -> Workload:
    """The jobs of a log that can be replayed on a machine, in the order in which they arrive.

    A line is dropped when: it asks for or was given more processors than the machine has; it has neither number; its
    run time or its requested time is not positive (a log without any requested time takes the run time instead); its
    submit time is negative. What is kept runs for min(run, requested time): it is killed at its limit.
    Source: the 'strong filter' of Gaussier et al., SC 2015.

    Args:
        machine_procs: processors of the machine, or of the part of it within which every job is.
        first: keep only that many jobs, the earliest.
        scale_arrivals: factor on every gap between submits (0.5: twice the load), rounded down to whole seconds since
            the first submit.
        what: has so many processors, in words.
    Raises: LogError when no job is left, or the last one would be submitted later than `MAX_SUBMIT_S`.
    """
    rows = log.rows
    limit_s = rows.requested_s
    if not bool((limit_s > 0).any()):
        limit_s = rows.run_s
    skipped = {"bad line": log.bad_lines}
    keep = np.ones(rows.line.size, np.bool_)
    for reason, drop in (
        (f"more processors than {what}", (rows.allocated > machine_procs) | (rows.requested > machine_procs)),
        ("no processors", (rows.allocated <= 0) & (rows.requested <= 0)),
        ("no run time", rows.run_s <= 0),
        ("no requested time", limit_s <= 0),
        ("negative submit time", rows.submit_s < 0),
    ):
        skipped[reason] = int((keep & drop).sum())
        keep &= ~drop
    skipped = {reason: count for reason, count in skipped.items() if count}
    kept = np.flatnonzero(keep)
    if not kept.size:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in skipped.items())
        raise LogError(
            f"nothing to replay in {log.name} on {machine_procs} processors: all its lines were left out ({reasons})",
            hint="give the machine's size with --nodes and --cpus-per-node",
        )
    kept = kept[np.argsort(rows.submit_s[kept], kind="stable")][:first]
    submit_s = rows.submit_s[kept]
    if scale_arrivals != 1.0:
        since_first = np.floor((submit_s - submit_s[0]).astype(np.float64) * scale_arrivals)
        if not since_first[-1] <= MAX_SUBMIT_S:
            raise LogError(
                f"{log.name} scaled by {scale_arrivals:g} has its last submit {since_first[-1]:g} s after the first",
                hint=f"at most {MAX_SUBMIT_S:g} s are replayed; scale by less",
            )
        submit_s = submit_s[0] + since_first.astype(np.int64)
    limit_s = limit_s[kept]
    return Workload(
        id=rows.job_id[kept],
        submit_s=submit_s,
        run_s=np.minimum(rows.run_s[kept], limit_s),
        limit_s=limit_s,
        procs=np.where(rows.requested[kept] > 0, rows.requested[kept], rows.allocated[kept]),
        user=rows.user[kept],
        skipped=skipped,
        group=rows.group[kept],
        queue=rows.queue[kept],
    )


def read_bytes(path: str | Path, stream: BinaryIO | None = None) -> bytes:
    """All that is in a file of jobs, unpacked. Arguments and errors as of `read_log`."""
    return _unpacked(_all_bytes(path, stream), str(path))


def _all_bytes(path: str | Path, stream: BinaryIO | None) -> bytes:
    try:
        if stream is not None:
            return stream.read(MAX_LOG_BYTES + 1)
        with open(path, "rb") as file:
            return file.read(MAX_LOG_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file '{path}'", hint="give a workload log, or - for standard input") from None
    except PermissionError:
        raise DeniedError(f"the file '{path}' cannot be read", hint=f"see: ls -l {path}") from None
    except IsADirectoryError:
        raise LogError(f"{path} is a directory", hint="give one log file, .swf or .swf.gz") from None
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror or error}") from None


def _unpacked(data: bytes, name: str) -> bytes:
    for magic, kind in _PACKED.items():
        if data.startswith(magic):
            raise LogError(f"{name} is {kind}-compressed", hint="unpack it first; plain text and gzip are read")
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MAX_LOG_BYTES + 1)
        except EOFError:
            raise LogError(f"{name} is truncated: its gzip stream ends early", hint="download it again") from None
        except (OSError, zlib.error) as error:
            raise LogError(f"{name} is not a sound gzip file: {error}", hint="download it again") from None
    if len(data) > MAX_LOG_BYTES:
        raise LogError(f"{name} is larger than {MAX_LOG_BYTES >> 30} GiB unpacked", hint="split it")
    return data


def _header(data: bytes) -> dict[str, str]:
    header: dict[str, str] = {}
    for match in _HEADER_LINE.finditer(data):
        header.setdefault(match.group(1).decode("ascii"), match.group(2).decode("utf-8", "replace"))
    return header


def _numbered(data: bytes) -> tuple[dict[int, str], dict[int, str]]:
    """Read the header's names of queues and of groups, by number; the first of each number."""
    names: dict[bytes, dict[int, str]] = {b"Queue": {}, b"Group": {}}
    for match in _NUMBERED_LINE.finditer(data):
        names[match.group(1)].setdefault(int(match.group(2)), match.group(3).decode("utf-8", "replace"))
    return names[b"Queue"], names[b"Group"]
