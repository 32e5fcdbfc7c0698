"""Every declared transition of tasks, attempts, nodes and gates is taken by the real task plane, or says why not yet.

The histories of tests/core/lifecycle walk the tables; here the tables tell which transitions the plane really takes.
"""

from __future__ import annotations

from hal.core.engine.events import JobsSubmitted
from hal.core.model import EventKind, StepId, TaskState
from hal.planes.tasks import Arrival, EndedTask
from hal.store.operations import AppendEvents
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, StepStarted, Usage
from hal.wire.frames.hello import HeldStep
from tests.core.lifecycle.witness import AUTOMATA, witnessed
from tests.planes.tasks.attempts.test_preemption import moves
from tests.planes.tasks.small_plane import BY, SmallPlane

GATED = "no plane registers a gate yet: prolog and epilog (a real cluster), staging (data), installing (binaries)"
GOODBYE = "no node says goodbye yet: an agent that leaves in good order"
STOPPED_FIRST = "a cancel stops what was allocated and finalises it, even where nothing ran: the keeper has to say so"
AS_REQUEUE = "a refused start comes back by `requeue`, as the next attempt: its start frame may have been seen"
PREEMPTED = "what runs is stopped and finalised before it is preempted, and before it started nobody preempts it yet"
UNADMITTED = "no rule fails what waits yet: a site's own hook (plugins); a dependency that fails cancels or holds"

NOT_YET = {
    "task": {
        **dict.fromkeys(["pending fail", "held fail"], UNADMITTED),
        **dict.fromkeys(["preparing finalise", "preparing fail", "preparing cancel", "preparing requeue"], GATED),
        "suspended cancel": STOPPED_FIRST,
        "allocated refuse": AS_REQUEUE,
        "allocated cancel": STOPPED_FIRST,
        "running cancel": STOPPED_FIRST,
    },
    "attempt": {
        **dict.fromkeys(
            [
                "preparing finalise",
                "preparing refuse",
                "preparing fail",
                "preparing cancel",
                "preparing preempt",
                "preparing lose",
            ],
            GATED,
        ),
        "suspended cancel": STOPPED_FIRST,
        "allocated cancel": STOPPED_FIRST,
        "running cancel": STOPPED_FIRST,
        "allocated preempt": PREEMPTED,
    },
    "node": {
        **dict.fromkeys(["up leave", "draining leave"], GOODBYE),
    },
    "gate": dict.fromkeys(
        [
            "waiting pass",
            "waiting fail",
            "waiting expire",
            "waiting abandon",
            "passed pass",
            "failed fail",
            "expired pass",
            "expired fail",
            "abandoned pass",
            "abandoned fail",
        ],
        GATED,
    ),
}
"""By automaton and `state event`: why no plane takes it yet, with what will."""


def people_hold_release_cancel() -> None:
    """While tasks wait, and while they run."""
    plane = SmallPlane()
    held, waiting, running, gone = plane.submit({}, {}, {}, {"hold": True})
    plane.plane.hold(held, None, BY, 1_000)
    plane.plane.release(held, None, BY, 1_000)
    plane.plane.hold(held, None, BY, 1_000)
    plane.plane.cancel(held, None, BY, 1_000)
    plane.plane.cancel(gone, None, BY, 1_000)
    plane.plane.cancel(waiting, None, BY, 1_000)
    plane.commit()
    plane.start((running, 0))
    plane.plane.cancel(running, None, BY, 1_000)
    plane.commit()
    plane.end(running, code=143, cause=ExitCause.CANCELLED)


def dependencies_fail() -> None:
    """Of a waiting job and of a held one."""
    plane = SmallPlane()
    first, _second, _third = plane.submit(
        {"name": "a"}, {"dependencies": ["afterok:a"]}, {"dependencies": ["afterok:a"], "hold": True}
    )
    plane.start((first, 0))
    plane.end(first, code=1)


def attempts_end_in_every_way() -> None:
    """With a process and without one; a gang whose rank is refused when another has begun; one that runs again."""
    plane = SmallPlane()
    for cause, code in (
        (ExitCause.EXITED, 0),
        (ExitCause.EXITED, 3),
        (ExitCause.TIMED_OUT, 143),
        (ExitCause.OUT_OF_MEMORY, 137),
        (ExitCause.LOST, 0),
    ):
        (job,) = plane.submit({})
        plane.start((job, 0))
        begun(plane, job)
        plane.end(job, cause=cause, code=code)
    job, refused, impossible = plane.submit({"retries": 1}, {}, {})
    plane.start((job, 0), (refused, 0), (impossible, 0))
    plane.end(job, code=1)
    plane.plane.record_refusals("n1", [Refusal(StepId(refused, 0, 1, 0), "overloaded", "full")], 1_000)
    plane.plane.record_refusals("n1", [Refusal(StepId(impossible, 0, 1, 0), "bad-workdir", "no such directory")], 1_000)
    plane.commit()
    (gang,) = plane.submit({"nodes": 2})
    plane.start((gang, 0))
    begun(plane, gang)
    plane.plane.record_refusals("n2", [Refusal(StepId(gang, 0, 1, 1), "overloaded", "full")], 1_000)
    plane.commit()
    plane.end(gang, code=143, cause=ExitCause.CANCELLED)
    (again,) = plane.submit({})
    plane.start((again, 0))
    begun(plane, again)
    plane.plane.requeue(again, 0, [], BY, 1_000)
    plane.commit()
    plane.end(again, code=143, cause=ExitCause.PREEMPTED)


def people_run_again() -> None:
    """What ended in each way."""
    plane = SmallPlane()
    for number, state in enumerate((TaskState.SUCCEEDED, TaskState.FAILED, TaskState.TIMED_OUT)):
        # Two tasks, so that the job stays live when the first has ended.
        (job,) = plane.submit({"array": 2})
        plane.start((job, 0))
        cause = ExitCause.TIMED_OUT if state is TaskState.TIMED_OUT else ExitCause.EXITED
        plane.end(job, code=number, cause=cause)
        plane.plane.requeue(job, 0, [EndedTask(0, 1, state, number)], BY, 1_000)
        plane.commit()
    (job,) = plane.submit({"array": 2})
    plane.plane.cancel(job, 0, BY, 1_000)
    plane.plane.requeue(job, 0, [], BY, 1_000)
    plane.commit()


def nodes_fall_silent_return_and_are_lost() -> None:
    """With attempts that had begun, that had not, and that were being stopped."""
    plane = SmallPlane(nodes=1)
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.record_return("n1", 1_000)
    jobs = plane.submit({}, {}, {})
    plane.start(*((job, 0) for job in jobs))
    begun(plane, jobs[1])
    plane.plane.cancel(jobs[2], None, BY, 1_000)
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b2"), 1_000)
    plane.commit()


def nodes_are_closed_opened_emptied_and_forgotten() -> None:
    """While they are heard, silent, and gone; one that drains falls silent and returns."""
    plane = SmallPlane(nodes=3)
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000)
    plane.plane.uncordon("n1", BY)
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.plane.uncordon("n1", BY)
    plane.plane.cordon("n1", "", BY, 1_000)
    for _ in range(2):
        plane.plane.record_silence("n1", "not heard", 1_000, 900)
        plane.plane.record_return("n1", 1_000)
        plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    plane.end(job)
    plane.plane.remove_node("n1", BY)
    for name in ("n2", "n3"):
        plane.plane.cordon(name, "", BY, 1_000)
        plane.plane.record_silence(name, "not heard", 1_000, 900)
        plane.plane.fence_node(name, BY, 1_000)
    plane.plane.remove_node("n2", BY)
    plane.plane.record_arrival(Arrival(name="n3", capacity={"cpu": 64_000}, boot_id="b2"), 1_000)
    plane.commit()


def nodes_stop_in_good_order() -> None:
    """While they are open, closed and being emptied: each comes back as it was, until one is declared gone."""
    plane = SmallPlane(nodes=1)
    (job,) = plane.submit({})
    plane.start((job, 0))
    for drain in (None, False, True):
        if drain is not None:
            plane.plane.cordon("n1", "", BY, 1_000, drain=drain)
        plane.plane.record_silence("n1", "it stops", 1_000, 900, stopped=True)
        plane.plane.record_return("n1", 1_000)
    plane.plane.record_silence("n1", "it stops", 1_000, 900, stopped=True)
    plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()


def machines_are_declared_gone() -> None:
    """Of nodes that are up, cordoned and draining."""
    plane = SmallPlane(nodes=3)
    jobs = plane.submit({"nodes": 3})
    plane.start((jobs[0], 0))
    plane.plane.cordon("n2", "", BY, 1_000)
    plane.plane.cordon("n3", "", BY, 1_000, drain=True)
    for name in ("n1", "n2", "n3"):
        plane.plane.fence_node(name, BY, 1_000, machine_gone=True)
    plane.commit()


def a_gang_loses_a_node_while_its_siblings_are_stopped() -> None:
    """One rank has failed, the node of the other is gone before it could say how it ended."""
    plane = SmallPlane()
    (gang,) = plane.submit({"nodes": 2})
    plane.start((gang, 0))
    plane.end(gang, code=5)
    plane.plane.record_silence("n2", "not heard", 1_000, 900)
    plane.plane.fence_node("n2", BY, 1_000)
    plane.commit()


def work_is_suspended_and_goes_on() -> None:
    """One goes on, one is cancelled while it stands still, one is lost."""
    plane = SmallPlane(nodes=1)
    jobs = plane.submit({}, {}, {})
    plane.start(*((job, 0) for job in jobs))
    for job in jobs:
        begun(plane, job)
    plane.plane.preempt(moves(*jobs, mode="suspend"), 1_000)
    plane.commit()
    plane.plane.resume(moves(jobs[0]), 2_000)
    plane.plane.cancel(jobs[1], None, BY, 1_000)
    plane.commit()
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()


STORIES = (
    people_hold_release_cancel,
    dependencies_fail,
    attempts_end_in_every_way,
    people_run_again,
    nodes_fall_silent_return_and_are_lost,
    nodes_are_closed_opened_emptied_and_forgotten,
    nodes_stop_in_good_order,
    machines_are_declared_gone,
    a_gang_loses_a_node_while_its_siblings_are_stopped,
    work_is_suspended_and_goes_on,
)


def begun(plane: SmallPlane, job: int, rank: int = 0) -> None:
    """A process of its first task runs."""
    attempt = plane.live(job).active[0]
    report = StepStarted(StepId(job, 0, attempt.attempt, rank), 7, 1_000)
    plane.plane.record_starts(attempt.nodes[rank], [report], 1_000)
    plane.commit()


def test_the_plane_takes_every_declared_transition_or_says_why_not_yet() -> None:
    """Either a story above takes it, or the list says which feature will; a transition on the list is taken by none."""
    with witnessed() as taken:
        for story in STORIES:
            story()
    declared = {(a.name, str(state), str(event)) for a in AUTOMATA for state, event in a.table}
    listed = {(name, *words.split()) for name, reasons in NOT_YET.items() for words in reasons}
    assert sorted(declared - taken - listed) == [], "neither taken by the plane nor listed with a reason"
    assert sorted(listed & taken) == [], "listed as not taken yet, and taken"
    assert sorted(listed - declared) == [], "listed, and not declared any more"


def test_a_returning_node_tells_which_attempts_had_begun() -> None:
    """The report of a start was lost with the agent; what the keeper holds with a process counts as started."""
    plane = SmallPlane()
    begins, waits = plane.submit({}, {})
    plane.start((begins, 0), (waits, 0))
    held = (
        HeldStep(StepId(begins, 0, 1, 0), running=True, pid=7, started_ms=900),
        HeldStep(StepId(waits, 0, 1, 0), running=True, pid=0, started_ms=0),
    )
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=held), 1_000)
    change = plane.commit()
    states = {job: plane.live(job).active[0].state.value for job in (begins, waits)}
    assert states == {begins: "running", waits: "allocated"}
    assert plane.live(begins).active[0].started_ms == 1_000, "kept between its allocation and now"
    kinds = [
        event.kind
        for operation in change.operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
    ]
    assert kinds.count(EventKind.ATTEMPTS_STARTED) == 1


def test_of_one_commit_the_feed_tells_a_start_before_its_end() -> None:
    """Job 1 ends; job 2 starts and ends; all in one commit, so that the block of ends begins before the start."""
    plane = SmallPlane()
    first, second = plane.submit({}, {})
    plane.start((first, 0), (second, 0))
    begun(plane, first)
    usage = Usage(0, 0, 0, 0, 0)
    for job, started_ms in ((first, 0), (second, 950)):
        report = StepExit(StepId(job, 0, 1, 0), ExitCause.EXITED, 0, 0, started_ms, 1_000, usage, "")
        plane.plane.record_exits("n1", [report], 1_000)
    change = plane.commit()
    events = [
        event for operation in change.operations if isinstance(operation, AppendEvents) for event in operation.events
    ]
    told = [event for event in events if event.kind in (EventKind.ATTEMPTS_STARTED, EventKind.ATTEMPTS_ENDED)]
    assert [(event.kind, event.jobs) for event in told] == [
        (EventKind.ATTEMPTS_STARTED, [second]),
        (EventKind.ATTEMPTS_ENDED, [first, second]),
    ]


def test_what_waits_again_is_told_to_the_engine_in_the_order_of_jobs() -> None:
    """Released in the order 3, 1, 2 within one commit, tasks of one job backwards: one block of sorted rows."""
    plane = SmallPlane()
    jobs = plane.submit({"array": 3, "hold": True}, {"hold": True}, {"hold": True})
    plane.plane.release(jobs[2], None, BY, 1_000)
    for task in (2, 0):
        plane.plane.release(jobs[0], task, BY, 1_000)
    plane.plane.release(jobs[1], None, BY, 1_000)
    (event,) = plane.commit().engine
    assert isinstance(event, JobsSubmitted)
    rows = [(int(row["job"]), int(row["first_task"])) for row in event.rows]
    assert rows == [(jobs[0], 0), (jobs[0], 2), (jobs[1], 0), (jobs[2], 0)]
