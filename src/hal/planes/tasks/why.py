"""'Why is it not running?': what the plane knows (held, dependencies, back-off, ended), else the engine's answer.

Pure.
"""

from __future__ import annotations

from hal.core.model import Reason, TaskState, Verdict, plural
from hal.planes.tasks.engine_view import EngineView
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.table import JobTable

MAX_NAMED = 5
"""Most dependencies that the message names."""


def why(table: JobTable, engine: EngineView, job: LiveJob, now_ms: int) -> Verdict:
    """The first thing that keeps the job's waiting tasks from starting; how it goes when none waits."""
    counts = job.counts
    if counts.pending == 0 and counts.held == 0:
        return Verdict(job=job.id, reason=Reason.NONE, message=_goes_on(job))
    if job.waits:
        return _dependency(table, job)
    if counts.pending == 0:
        return Verdict(
            job=job.id,
            reason=Reason.HELD,
            message=f"held: {plural(counts.held, 'task')} until somebody releases {_them(counts.held)}",
            helps=(f"hal release {job.id}",),
        )
    eligible = [span for span in job.spans if span.state is TaskState.PENDING and job.eligible_of(span) <= now_ms]
    if not eligible:
        return _later(job, now_ms)
    return engine.explain(job.id, now_ms)


def _dependency(table: JobTable, job: LiveJob) -> Verdict:
    parts, helps = [], []
    for other, kinds in sorted(job.waits.items()):
        live = table.jobs.get(other)
        state = f"{live.state}" if live else "ending"
        title = f" ({live.name or live.spec.title})" if live else ""
        parts.append(f"{' and '.join(kinds)} of job {other}{title}, which is {state}")
        if live is not None and live.state is TaskState.HELD:
            helps.append(f"hal release {other}")
    more = len(parts) - MAX_NAMED
    shown = "; ".join(parts[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return Verdict(job=job.id, reason=Reason.DEPENDENCY, message=f"waits for {shown}", helps=tuple(helps[:MAX_NAMED]))


def _later(job: LiveJob, now_ms: int) -> Verdict:
    waiting = [span for span in job.spans if span.state is TaskState.PENDING]
    first = min(waiting, key=lambda span: (job.eligible_of(span), span.first))
    at_ms = job.eligible_of(first)
    seconds = (at_ms - now_ms + 999) // 1000
    if first.eligible_ms <= job.eligible_ms:
        return Verdict(
            job=job.id,
            reason=Reason.BEGIN_AT,
            message=f"may not begin before its begin_at_ms, in {seconds} s",
            starts_at_ms=at_ms,
            basis="begin-at",
        )
    return Verdict(
        job=job.id,
        reason=Reason.BACKOFF,
        message=f"{first.reason or 'tried again'}: next try in {seconds} s",
        starts_at_ms=at_ms,
        basis="back-off",
        helps=(f"hal requeue {job.id}",),
    )


def _goes_on(job: LiveJob) -> str:
    if job.counts.active == 0:
        return f"has ended: {job.state}"
    return f"nothing waits: {plural(job.counts.active, 'task')} {job.state}"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
