"""Write HAL's own history as a log in the Standard Workload Format, which `hal simulate` and others replay. Pure.

One line for each attempt that ran: an attempt after the first is submitted when the one before it ended, a job that
waited for other jobs or for its begin time when it could have started. So the log is the load that the scheduler saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from hal.client.rest.feed_calls import EndedAttemptInfo
from hal.client.rest.views import JobInfo, NodeInfo
from hal.core.model import AttemptState

_COMPLETED, _FAILED, _CANCELLED = 1, 0, 5
_STATUS: Final = {AttemptState.SUCCEEDED: _COMPLETED, AttemptState.CANCELLED: _CANCELLED}
"""By how an attempt ended, every other end is a failure."""
_MILLI: Final = 1000
_KIB: Final = 1024
NONE: Final = -1


class Exported(Struct, kw_only=True):
    """What came of an export."""

    lines: int = 0
    without_walltime: int = 0
    """Attempts of jobs without a walltime: their run time stands as requested time."""
    rounded_up: int = 0
    """Attempts that asked for a part of a processor."""
    never_ran: int = 0
    """Attempts whose processes never began; they are left out."""
    job_unknown: int = 0
    """Attempts whose job is no longer kept; they are left out."""


class _Numbers:
    """Numbers of names, from 1, in the order in which they come."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known) + 1)


def swf_lines(
    attempts: Iterable[EndedAttemptInfo], jobs: Mapping[str, JobInfo], nodes: Sequence[NodeInfo], done: Exported
) -> Iterator[str]:
    """The lines of the log: the header, then attempts by submission.

    Args:
        attempts: in the order in which they ended.
        jobs: theirs, by id.
        nodes: of this HAL: their sum is the machine.
        done: counts what came of it.
    """
    users, groups, queues = _Numbers(), _Numbers(), _Numbers()
    rows: list[tuple[int, int, int, int, int, int, int, int, int, int, int, int]] = []
    ended: dict[tuple[str, int], int] = {}
    for one in attempts:
        before_ms = ended.get((one.job, one.task), 0)
        ended[one.job, one.task] = one.end_ms
        job = jobs.get(one.job)
        if one.start_ms is None:
            done.never_ran += 1
            continue
        if job is None:
            done.job_unknown += 1
            continue
        cpu = job.request.get("cpu", 0)
        procs = max(-(-cpu // _MILLI), 1) * job.nodes
        done.rounded_up += cpu % _MILLI != 0
        done.without_walltime += job.walltime is None
        submit_ms = max(job.submit_ms, job.eligible_ms or 0, before_ms)
        # To the nearest second: rounded up, short jobs one after another would take longer than they did.
        run_s = max((one.end_ms - one.start_ms + _MILLI // 2) // _MILLI, 1)
        limit_s = run_s if job.walltime is None else max(-(-int(job.walltime) // _MILLI), run_s)
        used_s = (one.usage.get("user_ms", 0) + one.usage.get("system_ms", 0)) // _MILLI // procs
        used_kib = one.usage.get("max_rss_bytes", 0) // _KIB // max(procs // job.nodes, 1)
        asked_kib = job.request.get("memory", 0) // _KIB // max(procs // job.nodes, 1)
        rows.append(
            (
                min(submit_ms, one.start_ms), one.start_ms, run_s, procs, used_s or NONE, used_kib or NONE, limit_s,
                asked_kib or NONE, _STATUS.get(one.state, _FAILED), users.of(one.user),
                groups.of(one.account or "none"), queues.of(one.queue),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: row[:2])
    origin_s = rows[0][0] // _MILLI if rows else 0
    yield from _header(nodes, origin_s, len(rows), users, groups, queues)
    for number, row in enumerate(rows, 1):
        submit_ms, start_ms, run_s, procs, used_s, used_kib, limit_s, asked_kib, status, user, group, queue = row
        submit_s = submit_ms // _MILLI - origin_s
        wait_s = max(start_ms // _MILLI - origin_s - submit_s, 0)
        yield (
            f"{number} {submit_s} {wait_s} {run_s} {procs} {used_s} {used_kib} {procs} {limit_s} {asked_kib} {status} "
            f"{user} {group} {NONE} {queue} {NONE} {NONE} {NONE}"
        )
    done.lines = len(rows)


def _header(
    nodes: Sequence[NodeInfo], origin_s: int, jobs: int, users: _Numbers, groups: _Numbers, queues: _Numbers
) -> Iterator[str]:
    procs = sum(node.capacity.get("cpu", 0) // _MILLI for node in nodes)
    yield "; Version: 2.2"
    yield "; Computer: HAL"
    yield f"; MaxJobs: {jobs}"
    yield f"; MaxRecords: {jobs}"
    yield f"; UnixStartTime: {origin_s}"
    yield "; TimeZone: 0"
    yield f"; MaxNodes: {len(nodes)}"
    yield f"; MaxProcs: {max(procs, 1)}"
    yield f"; MaxQueues: {len(queues.known)}"
    for kind, numbers in (("Queue", queues), ("Group", groups), ("User", users)):
        for name, number in numbers.known.items():
            yield f"; {kind}: {number} {name}"
    yield "; Note: one line for each attempt that ran; submitted when it could have started"
