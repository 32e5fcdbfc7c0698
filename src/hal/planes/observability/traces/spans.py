"""The spans of a job: itself, its attempts, and what each of them waited for and did. Pure.

    job 42 ─┬─ attempt 42.0.1 ─┬─ held back     until it could have started: dependencies, a begin time, a hold
            │                  ├─ waiting       for resources, until nodes were allocated
            │                  ├─ starting      until its first process ran, with a span for each gate that it waited at
            │                  └─ running       until the end; a program that continues the trace is below this
            └─ attempt 42.0.2 …                 with a link to the attempt before it

Ids come from the trace's id and the attempt's, so they are the same whenever and wherever they are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model.trace_ids import RUN, job_span, run_span, span_id
from hal.planes.observability.history.reading import KeptAttempt

SUCCEEDED: Final = "succeeded"
NEUTRAL: Final = frozenset({"cancelled", "preempted"})
"""Ends that are nobody's failure."""
FORMER: Final = "former-attempt"
DEPENDENCY: Final = "dependency"
MAX_GATE_SPANS: Final = 64
"""Of one attempt."""


class Status(StrEnum):
    """How what a span stands for has ended."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


class SpanLink(Struct, frozen=True):
    """Another span that this one follows from."""

    trace_id: str
    span_id: str
    why: str
    """`former-attempt`, `dependency`."""


class SpanEvent(Struct, frozen=True):
    """Something that happened at an instant."""

    at_ms: int
    name: str


class Span(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One span."""

    name: str
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str = ""
    start_ms: int
    end_ms: int | None = None
    """None: it has not ended."""
    status: Status = Status.UNSET
    message: str = ""
    attributes: dict[str, str | int] = {}
    links: tuple[SpanLink, ...] = ()
    events: tuple[SpanEvent, ...] = ()


class GateNote(Struct, frozen=True):
    """That an attempt waited at a gate, passed it or failed there, by the controller's event feed."""

    at_ms: int
    attempt: str
    node: str
    gate: str
    state: str
    reason: str = ""


class Known(Struct, frozen=True, kw_only=True):
    """What is known of a job besides its attempts."""

    job: int
    trace_id: str
    name: str = ""
    parent_id: str = ""
    """The span below which it was submitted; empty: it began the trace."""
    links: tuple[SpanLink, ...] = ()
    gates: Sequence[GateNote] = ()
    events: tuple[SpanEvent, ...] = ()
    submit_ms: int | None = None
    ended_ms: int | None = None
    """None: it has not ended, or that is not known."""


def spans_of_job(known: Known, attempts: Sequence[KeptAttempt], running: Sequence[Span] = ()) -> list[Span]:
    """All spans, the job's first, the others below it in order.

    Args:
        attempts: that have ended, in the order of task and attempt.
        running: spans of those that have not.
    """
    below = [span for attempt in attempts for span in spans_of_attempt(known, attempt)] + list(running)
    starts = [span.start_ms for span in below] + ([known.submit_ms] if known.submit_ms else [])
    ends = [span.end_ms for span in below]
    last: dict[int, KeptAttempt] = {attempt.task: attempt for attempt in attempts}
    failed = [one for one in last.values() if _status(one) is Status.ERROR]
    live = bool(running) or None in ends
    whole = Span(
        name=f"job {known.job}" + (f" {known.name}" if known.name else ""),
        span_id=job_span(known.trace_id, known.job),
        parent_id=known.parent_id,
        start_ms=min(starts, default=0),
        end_ms=None if live else known.ended_ms or max((end for end in ends if end is not None), default=None),
        status=Status.UNSET if live else Status.ERROR if failed else Status.OK,
        message="" if live or not failed else _message(failed[0]),
        attributes={"hal.job": str(known.job), "hal.attempts": len(attempts), **_names(attempts)},
        links=known.links,
        events=known.events,
    )
    return [whole, *below]


def spans_of_attempt(known: Known, one: KeptAttempt) -> list[Span]:
    """The attempt's own span, and those of its phases."""
    trace_id, key = known.trace_id, f"{known.job}.{one.task}.{one.attempt}"
    began_ms = one.start_ms if one.start_ms is not None else one.end_ms
    allocated_ms = min(one.allocated_ms or began_ms, began_ms)
    eligible_ms = _first(
        one.wait_ms is not None and began_ms - (one.wait_ms or 0),
        one.attempt == 1 and (one.eligible_ms or one.submit_ms),
        allocated_ms,
    )
    eligible_ms = min(eligible_ms, allocated_ms)
    first_ms = min(one.submit_ms, eligible_ms) if one.attempt == 1 and one.submit_ms else eligible_ms
    own = span_id(trace_id, key)

    def phase(name: str, start_ms: int, end_ms: int, status: Status = Status.UNSET) -> Span:
        id_ = span_id(trace_id, f"{key}/{RUN if name == 'running' else name}")
        return Span(name=name, span_id=id_, parent_id=own, start_ms=start_ms, end_ms=end_ms, status=status)

    phases: list[Span] = []
    if first_ms < eligible_ms:
        phases.append(phase("held back", first_ms, eligible_ms))
    phases.append(phase("waiting", eligible_ms, allocated_ms))
    starting = phase("starting", allocated_ms, began_ms)
    phases.append(starting)
    phases += _gate_spans(known, key, starting, one.end_ms)
    if one.start_ms is not None:
        run = phase("running", one.start_ms, one.end_ms, _status(one))
        used: dict[str, str | int] = {"hal.cpu_ms": one.cpu_ms, "hal.peak_bytes": one.peak_bytes}
        phases.append(msgspec.structs.replace(run, attributes=used, message=_message(one)))
    links: tuple[SpanLink, ...] = ()
    if one.attempt > 1:
        links = (SpanLink(trace_id, span_id(trace_id, f"{known.job}.{one.task}.{one.attempt - 1}"), FORMER),)
    attributes: dict[str, str | int] = {
        "hal.job": str(known.job),
        "hal.task": one.task,
        "hal.attempt": one.attempt,
        "hal.state": one.state,
        "hal.nodes": ",".join(one.nodes[:16]),
    }
    if one.exit_code is not None:
        attributes["hal.exit_code"] = one.exit_code
    whole = Span(
        name=f"attempt {key}",
        span_id=own,
        parent_id=job_span(trace_id, known.job),
        start_ms=first_ms,
        end_ms=one.end_ms,
        status=_status(one),
        message=_message(one),
        attributes=attributes,
        links=links,
    )
    return [whole, *phases]


def live_attempt(known: Known, task: int, attempt: int, start_ms: int | None, nodes: Iterable[str]) -> list[Span]:
    """The spans of an attempt that runs, as far as they are known."""
    key = f"{known.job}.{task}.{attempt}"
    own = span_id(known.trace_id, key)
    begun_ms = start_ms if start_ms is not None else known.submit_ms or 0
    whole = Span(
        name=f"attempt {key}",
        span_id=own,
        parent_id=job_span(known.trace_id, known.job),
        start_ms=(known.submit_ms or begun_ms) if attempt == 1 else begun_ms,
        attributes={"hal.job": str(known.job), "hal.task": task, "hal.attempt": attempt, "hal.nodes": ",".join(nodes)},
    )
    if start_ms is None:
        waiting = Span(
            name="waiting", span_id=span_id(known.trace_id, f"{key}/waiting"), parent_id=own, start_ms=begun_ms
        )
        return [whole, waiting]
    run = Span(
        name="running",
        span_id=run_span(known.trace_id, known.job, task, attempt),
        parent_id=own,
        start_ms=start_ms,
    )
    return [whole, run]


def _gate_spans(known: Known, key: str, starting: Span, end_ms: int) -> list[Span]:
    """Of each gate at which it waited, from there to where it passed."""
    spans: list[Span] = []
    begun: dict[tuple[str, str], GateNote] = {}
    for note in known.gates:
        if note.attempt != key:
            continue
        gate = (note.gate, note.node)
        if note.state == "waiting":
            begun.setdefault(gate, note)
            continue
        first = begun.pop(gate, note)
        spans.append(_gate_span(known, key, starting, first, note.at_ms, note))
    spans += [_gate_span(known, key, starting, note, end_ms, None) for note in begun.values()]
    return spans[:MAX_GATE_SPANS]


def _gate_span(known: Known, key: str, starting: Span, first: GateNote, end_ms: int, last: GateNote | None) -> Span:
    failed = last is None or last.state == "failed"
    final = first.at_ms > (starting.end_ms or 0)
    return Span(
        name=f"gate {first.gate} on {first.node}",
        span_id=span_id(known.trace_id, f"{key}/gate/{first.gate}/{first.node}"),
        parent_id=starting.parent_id if final else starting.span_id,
        start_ms=first.at_ms,
        end_ms=max(first.at_ms, end_ms),
        status=Status.ERROR if failed else Status.OK,
        message=(last or first).reason,
    )


def _names(attempts: Sequence[KeptAttempt]) -> dict[str, str | int]:
    if not attempts:
        return {}
    one = attempts[0]
    return {"hal.queue": one.queue, "hal.account": one.account, "enduser.id": one.user}


def _status(one: KeptAttempt) -> Status:
    if one.state == SUCCEEDED:
        return Status.OK
    return Status.UNSET if one.state in NEUTRAL else Status.ERROR


def _message(one: KeptAttempt) -> str:
    if one.state == SUCCEEDED:
        return ""
    code = f", exit code {one.exit_code}" if one.exit_code else ""
    return one.message or f"{one.state}{code}"


def _first(*values: int | bool | None) -> int:
    return next(int(value) for value in values if value is not None and value is not False)
