"""Spans of jobs from their rows: phases, attempts that follow one another, gates, what has not ended."""

from __future__ import annotations

from msgspec.structs import replace

from hal.core.model.trace_ids import begun_by_job, below_job, below_run, job_span, run_span, share_of
from hal.planes.observability.history.reading import KeptAttempt
from hal.planes.observability.traces.spans import GateNote, Known, Status, live_attempt, spans_of_attempt, spans_of_job

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
KNOWN = Known(job=42, trace_id=TRACE, name="fit", submit_ms=1_000)
ENDED = KeptAttempt(
    id=1, job="42", task=0, attempt=1, state="succeeded", name="fit", queue="default", account="", user="alice",
    trace_id=TRACE, nodes=("n1",), submit_ms=1_000, eligible_ms=3_000, allocated_ms=7_000, start_ms=8_000,
    end_ms=20_000, retries=0, cause="exited", exit_code=0, signal=None, message="", cpu=1_000, memory_bytes=0, gpu=0,
    walltime_ms=None, wait_ms=5_000, ran_ms=12_000, core_ms=12_000, cpu_ms=11_000, partly_counted=False, peak_bytes=5,
    gpu_ms=0, gpu_used_ms=None, read_bytes=0, written_bytes=0, gpu_counted_ms=0, energy_j=0.0, energy_measured=False,
    measured_energy_j=0.0, price=None,
)  # fmt: skip


def phases(attempt: KeptAttempt, known: Known = KNOWN) -> list[tuple[str, int, int | None]]:
    """Name, start and end of each span below that of the attempt."""
    return [(span.name, span.start_ms, span.end_ms) for span in spans_of_attempt(known, attempt)[1:]]


def test_an_attempt_is_held_back_waits_starts_and_runs() -> None:
    """Submitted at 1 s, eligible at 3 s, allocated at 7 s, started at 8 s, ended at 20 s."""
    assert phases(ENDED) == [
        ("held back", 1_000, 3_000), ("waiting", 3_000, 7_000), ("starting", 7_000, 8_000), ("running", 8_000, 20_000),
    ]  # fmt: skip


def test_a_second_attempt_waits_from_the_end_of_the_first_and_is_linked_to_it() -> None:
    """It waited 2 s before it began at 30 s."""
    second = replace(ENDED, attempt=2, allocated_ms=29_000, start_ms=30_000, end_ms=40_000, wait_ms=2_000)
    assert phases(second)[0] == ("waiting", 28_000, 29_000)
    first, after = spans_of_attempt(KNOWN, ENDED)[0], spans_of_attempt(KNOWN, second)[0]
    assert [(link.span_id, link.why) for link in after.links] == [(first.span_id, "former-attempt")]


def test_an_attempt_that_never_ran_has_no_run() -> None:
    """It ended while it was starting."""
    never = replace(ENDED, start_ms=None, wait_ms=None, end_ms=9_000, state="failed", message="no such program")
    assert [name for name, _, _ in phases(never)] == ["held back", "waiting", "starting"]
    assert spans_of_attempt(KNOWN, never)[0].message == "no such program"


def test_a_gate_is_a_span_of_the_start() -> None:
    """From where it waited to where it passed; one that was never passed ends with the attempt, as a failure."""
    gates = [
        GateNote(7_100, "42.0.1", "n1", "stage", "waiting"),
        GateNote(7_900, "42.0.1", "n1", "stage", "passed"),
        GateNote(19_000, "42.0.1", "n1", "collect", "waiting", "no room"),
        GateNote(7_300, "42.1.1", "n2", "stage", "waiting"),
    ]
    spans = spans_of_attempt(replace(KNOWN, gates=gates), ENDED)
    whole, starting = spans[0], next(span for span in spans if span.name == "starting")
    found = [
        (span.name, span.start_ms, span.end_ms, span.parent_id, span.status) for span in spans if "gate" in span.name
    ]
    assert found == [
        ("gate stage on n1", 7_100, 7_900, starting.span_id, Status.OK),
        ("gate collect on n1", 19_000, 20_000, whole.span_id, Status.ERROR),
    ]


def test_a_job_is_as_its_last_attempts_are() -> None:
    """The first attempt failed, the second did not."""
    first = replace(ENDED, state="failed", exit_code=3)
    second = replace(ENDED, attempt=2, start_ms=30_000, end_ms=40_000)
    whole = spans_of_job(KNOWN, [first, second])[0]
    assert (whole.start_ms, whole.end_ms, whole.status) == (1_000, 40_000, Status.OK)
    assert spans_of_job(KNOWN, [first])[0].status is Status.ERROR


def test_a_job_with_an_attempt_that_runs_has_not_ended() -> None:
    """Nor has that attempt."""
    whole, attempt, run = spans_of_job(KNOWN, [], live_attempt(KNOWN, 0, 1, 8_000, ("n1",)))
    assert (whole.end_ms, attempt.end_ms, run.end_ms) == (None, None, None)
    assert run.span_id == run_span(TRACE, 42, 0, 1)


def test_each_span_has_an_id_of_its_own_and_a_parent_that_is_there() -> None:
    """But for the job's, whose parent is whoever submitted it."""
    spans = spans_of_job(replace(KNOWN, parent_id="00f067aa0ba902b7"), [ENDED, replace(ENDED, task=1)])
    ids = [span.span_id for span in spans]
    assert len(set(ids)) == len(ids)
    assert {span.parent_id for span in spans[1:]} <= set(ids)
    assert spans[0].parent_id == "00f067aa0ba902b7"


def test_a_step_goes_on_below_the_run_of_its_attempt() -> None:
    """The controller names the job's span, the node makes it the attempt's; whether it is sampled stays."""
    of_job = below_job(f"00-{TRACE}-00f067aa0ba902b7-00", 42)
    assert of_job == f"00-{TRACE}-{job_span(TRACE, 42)}-00"
    assert below_run(of_job, 42, 7, 2) == f"00-{TRACE}-{run_span(TRACE, 42, 7, 2)}-00"


def test_a_job_that_began_its_trace_is_the_parent_of_its_runs() -> None:
    """It is sampled."""
    of_job = begun_by_job(TRACE, 42)
    assert of_job == f"00-{TRACE}-{job_span(TRACE, 42)}-01"
    assert below_run(of_job, 42, 7, 2) == f"00-{TRACE}-{run_span(TRACE, 42, 7, 2)}-01"


def test_a_traceparent_that_a_job_sets_itself_is_left_as_it_is() -> None:
    """Its parent is not the job's span."""
    assert below_run(f"00-{TRACE}-00f067aa0ba902b7-01", 42, 0, 1) == ""


def test_samples_are_spread_evenly() -> None:
    """Of 10,000 traces about a tenth is below 0.1."""
    below = sum(share_of(f"{number:032x}") < 0.1 for number in range(10_000))
    assert 900 < below < 1_100
