"""What becomes of a job that has waited for one domain as long as it says: it may start anywhere from then on.

Pure. The wish is taken off the job, as if its user had done so: rows, the engine and who reads the events agree on it,
and a controller that starts again finds either the wish, with its time, or none.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model import EventKind, Reason, Verdict
from hal.core.model.topology.packing import packing_of
from hal.core.model.units import format_duration, format_wait
from hal.planes.tasks.admission.levels import unpacked
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import Work
from hal.planes.tasks.table.packs import give_up_ms
from hal.planes.tasks.table.propagation import settle, settling
from hal.planes.tasks.table.table import JobTable

CAUSE: Final = "pack"


def give_up_due(table: JobTable, now_ms: int) -> Work[None]:
    """Take the wish off all jobs whose wait is over, in slices."""
    while table.packs.next_ms() <= now_ms:
        job = table.touch(table.packs.first())
        asked = job.spec.pack
        job.spec = unpacked(job.spec)
        table.draft.edited.add(job.id)
        table.draft.reclassed.add(job.id)
        if job.active:
            table.reshaped.add(job.id)
        table.draft.note(
            EventKind.JOBS_CHANGED, CAUSE, job.trace_id, job.id, fields={"pack": ""}, before={"pack": asked}
        )
        settle(table, job, now_ms, CAUSE)
        yield from settling(table)
        yield


def with_pack(job: LiveJob, verdict: Verdict, now_ms: int) -> Verdict:
    """The engine's answer with how long the job still waits for one domain, where it does."""
    at_ms = give_up_ms(job)
    if at_ms >= INF:
        return verdict
    asked = packing_of(job.spec.pack)
    message, still = verdict.message, format_wait(max(at_ms - now_ms, 0))
    if verdict.never:  # that of the domain alone: whether it could start at all was asked before
        message = f"no {asked.level} could hold its {job.spec.nodes} nodes"
    text = (
        f"It waits up to {format_duration(asked.wait_ms)} for one {asked.level}, then for nodes anywhere (in {still})"
    )
    return replace(not_never(job, verdict), message=f"{message}. {text}" if message else text)


def not_never(job: LiveJob, verdict: Verdict) -> Verdict:
    """The engine's answer about a job that waits for one domain: that none could hold it is not for ever."""
    if not verdict.never or give_up_ms(job) >= INF:
        return verdict
    return replace(verdict, reason=Reason.RESOURCES, never=False, helps=(f"hal update {job.id} --pack none",))
