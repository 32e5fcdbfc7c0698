"""Ids of the spans of a job's trace: the same wherever they are computed, so nobody has to be asked for them.

Pure. A node gives a step the id of its attempt's run as its parent; the collector builds that span later, from rows.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from hal.core.model.trace_context import trace_id_of

TRACE_CHARS: Final = 32
SPAN_BYTES: Final = 8
RUN: Final = "run"
"""Of the processes of an attempt."""
_PARENT: Final = slice(36, 52)
_FLAGS: Final = slice(53, 55)
"""Of a `traceparent`: that the trace is sampled."""
_SCALE: Final = float(1 << 64)


def job_span(trace_id: str, job: int) -> str:
    """Of the job as a whole, 16 hexadecimal digits."""
    return span_id(trace_id, f"{job}")


def run_span(trace_id: str, job: int, task: int, attempt: int) -> str:
    """Of the processes of an attempt, from start to end."""
    return span_id(trace_id, f"{job}.{task}.{attempt}/{RUN}")


def span_id(trace_id: str, what: str) -> str:
    """Of anything that has a name in the trace."""
    found = blake2b(f"{trace_id}/{what}".encode(), digest_size=SPAN_BYTES).hexdigest()
    return found if found.strip("0") else f"{1:016x}"  # zeros are no id


def below_job(traceparent: str, job: int) -> str:
    """The `traceparent` for what is below the span of a job that goes on with a trace.

    Args:
        traceparent: with which the job was submitted; valid.
    """
    trace_id = trace_id_of(traceparent)
    return _below(traceparent, trace_id, job_span(trace_id, job))


def begun_by_job(trace_id: str, job: int) -> str:
    """The `traceparent` for what is below the span of a job that began its trace; it is sampled."""
    return f"00-{trace_id}-{job_span(trace_id, job)}-01"


def below_run(traceparent: str, job: int, task: int, attempt: int) -> str:
    """The `traceparent` for what is below the span of an attempt's run; '' if this one is not that of its job.

    Args:
        traceparent: as `below_job` made it.
    """
    trace_id = trace_id_of(traceparent)
    if not trace_id or traceparent[_PARENT] != job_span(trace_id, job):
        return ""
    return _below(traceparent, trace_id, run_span(trace_id, job, task, attempt))


def _below(traceparent: str, trace_id: str, parent: str) -> str:
    return f"00-{trace_id}-{parent}-{traceparent[_FLAGS]}"


def share_of(trace_id: str) -> float:
    """A number from 0 to 1 that is the same for all of a trace: it is sampled if its share is below the rate."""
    return int.from_bytes(blake2b(trace_id.encode(), digest_size=8, person=b"hal-sample").digest(), "big") / _SCALE
