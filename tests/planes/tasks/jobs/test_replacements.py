"""Replacing a service: when old tasks leave, when it is over, when it is given up, and what a restart remembers."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import ConflictError, Duration, HALError, NotFoundError, SpecError, TaskState, spec_from_plain
from hal.planes.tasks import Submitter
from hal.planes.tasks.jobs import replacements
from hal.planes.tasks.live.replacing import held_by
from hal.planes.tasks.slices import finished
from hal.wire.frames.agent_keeper import ExitCause, StepStarted
from hal.wire.frames.controller_agent import StepReadiness
from tests.planes.tasks.small_plane import BY, SmallPlane

WITHIN_MS = 60_000


class Services(SmallPlane):
    """A service of three tasks that are ready, and what is to replace it."""

    def __init__(self, tasks: int = 3) -> None:
        super().__init__()
        (self.old,) = self.submit({"name": "web", "array": tasks, "service": {}})
        self.run(self.old)
        self.ready(self.old, *range(tasks))

    def replace(self, max_unavailable: int = 0, tasks: int = 3, **fields: Any) -> int:
        about = {"job": self.old, "max_unavailable": max_unavailable, "give_up_after": str(Duration(WITHIN_MS))}
        (new,) = self.submit({"name": "web", "array": tasks, "service": {"replaces": about}, **fields})
        return new

    def run(self, job: int, *tasks: int) -> None:
        """Its waiting tasks start, or these."""
        started = tasks or [task for part in self.live(job).ranges for task in range(part.first, part.end)]
        self.start(*((job, task) for task in started))
        for task in started:
            attempt = self.live(job).active[task]
            begun = StepStarted(attempt.step(job, 0), 7, self.now_ms)
            self.plane.record_starts(attempt.nodes[0], [begun], self.now_ms)
        self.commit()

    def ready(self, job: int, *tasks: int, ready: bool = True) -> None:
        """Their nodes say so, and what follows is done."""
        for task in tasks:
            attempt = self.live(job).active[task]
            report = StepReadiness(attempt.step(job, 0), ready, self.now_ms, "" if ready else "refused")
            self.plane.record_readiness(attempt.nodes[0], [report], self.now_ms)
        self.commit()
        self.look()

    def look(self, later_ms: int = 0) -> None:
        """What is due by then is done, and what it stops ends."""
        self.now_ms += later_ms
        if self.plane.next_due_ms <= self.now_ms:
            finished(self.plane.carrying_out_due(self.now_ms))
        self.commit()
        for job in list(self.plane._table.jobs.objects()):
            for task, attempt in list(job.active.items()):
                if attempt.stopping:
                    cause = ExitCause.CANCELLED if attempt.stopping == "cancelled" else ExitCause.PREEMPTED
                    self.end(job.id, task, cause=cause, code=143)

    def serving(self, job: int) -> int:
        found = self.plane.ready_count(job)
        return 0 if found is None else found


def test_nothing_leaves_before_a_new_task_is_ready() -> None:
    """And the old job starts nothing any more."""
    plane = Services()
    new = plane.replace()
    plane.run(new)
    plane.look(5_000)
    assert (plane.serving(plane.old), plane.live(plane.old).hold) == (3, True)


def test_each_new_task_that_is_ready_lets_an_old_one_leave() -> None:
    plane = Services()
    new = plane.replace()
    plane.run(new)
    seen = []
    for task in (0, 1):
        plane.ready(new, task)
        seen.append((plane.serving(plane.old), plane.serving(new)))
    assert seen == [(2, 1), (1, 2)]


def test_as_many_as_may_be_missing_make_room_at_once() -> None:
    """One of three, before anything of the new job has started."""
    plane = Services()
    plane.replace(max_unavailable=1)
    plane.look()
    assert plane.serving(plane.old) == 2


def test_safety_no_more_are_missing_than_may_be() -> None:
    """Whatever else fails meanwhile: a ready task that is lost keeps the others from leaving."""
    plane = Services()
    new = plane.replace(max_unavailable=1)
    plane.look()
    plane.ready(plane.old, 2, ready=False)
    plane.run(new, 0)
    plane.look(2_000)
    assert plane.serving(plane.old) == 1 + 0 * new


def test_an_old_task_that_is_not_ready_leaves_at_once() -> None:
    """It serves nobody, and what it holds may be needed."""
    plane = Services()
    plane.ready(plane.old, 1, ready=False)
    plane.replace()
    plane.look()
    assert plane.live(plane.old).task_state(1) is TaskState.HELD
    assert plane.serving(plane.old) == 2


def test_when_all_new_tasks_are_ready_the_old_job_is_over() -> None:
    plane = Services()
    new = plane.replace()
    plane.run(new)
    plane.ready(new, 0, 1, 2)
    assert not plane.plane.is_live(plane.old)
    assert plane.live(new).reason == ""
    plane.look(10_000)
    assert not plane.plane._table.replacements


def test_the_old_job_says_what_has_replaced_it() -> None:
    plane = Services(tasks=1)
    new = plane.replace(tasks=1)
    plane.run(new)
    attempt = plane.live(new).active[0]
    plane.plane.record_readiness(attempt.nodes[0], [StepReadiness(attempt.step(new, 0), True, 1)], plane.now_ms)
    plane.commit()
    finished(plane.plane.carrying_out_due(plane.now_ms))
    plane.commit()
    assert plane.live(plane.old).reason == f"replaced by job {new}"
    change = plane.end(plane.old, cause=ExitCause.CANCELLED, code=143)
    (ended,) = change.ended
    assert (ended.state, ended.reason) == (TaskState.CANCELLED, f"replaced by job {new}")


def test_a_smaller_service_needs_no_more_than_it_has() -> None:
    """Five become two: three old ones leave at once, the others when the new ones are ready."""
    plane = Services(tasks=5)
    new = plane.replace(tasks=2)
    plane.look()
    assert plane.serving(plane.old) == 2
    plane.run(new)
    plane.ready(new, 0, 1)
    assert not plane.plane.is_live(plane.old)


def test_a_new_job_that_does_not_become_ready_in_time_is_given_up_and_the_old_one_goes_on() -> None:
    """What had left waits for its place again, and both say why."""
    plane = Services()
    new = plane.replace(max_unavailable=1)
    plane.look()
    plane.run(new, 0)
    plane.look(WITHIN_MS)
    old = plane.live(plane.old)
    why = "0 of 3 tasks were ready, and no more became so within 1m"
    assert not plane.plane.is_live(new)
    assert (old.hold, old.reason) == (False, f"job {new} did not replace it: {why}")
    assert [old.task_state(task) for task in range(3)].count(TaskState.PENDING) == 1
    assert plane.serving(plane.old) == 2


def test_every_task_that_becomes_ready_begins_the_deadline_anew() -> None:
    plane = Services()
    new = plane.replace()
    plane.run(new)
    plane.look(WITHIN_MS - 1)
    plane.ready(new, 0)
    plane.look(WITHIN_MS - 1)
    assert plane.plane.is_live(new)
    plane.look(1)
    assert not plane.plane.is_live(new)


def test_a_new_job_that_is_cancelled_gives_the_old_one_its_place_back() -> None:
    plane = Services()
    new = plane.replace(max_unavailable=2)
    plane.look()
    plane.plane.cancel(new, None, BY, plane.now_ms)
    plane.commit()
    plane.look(2_000)
    old = plane.live(plane.old)
    assert (old.hold, old.counts.pending, old.counts.held) == (False, 2, 0)
    assert old.reason == f"job {new}, which was to replace it, has ended"


def test_an_old_job_that_a_person_releases_is_replaced_no_longer() -> None:
    """The two run beside each other."""
    plane = Services()
    new = plane.replace()
    plane.plane.release(plane.old, None, BY, plane.now_ms)
    plane.commit()
    plane.run(new)
    plane.ready(new, 0, 1, 2)
    plane.look(2_000)
    assert (plane.serving(plane.old), plane.serving(new)) == (3, 3)
    assert plane.live(new).reason == ""


def test_what_is_being_replaced_says_so() -> None:
    plane = Services()
    new = plane.replace()
    assert held_by(new) in plane.plane.why(plane.live(plane.old), plane.now_ms).message
    assert plane.live(plane.old).reason == held_by(new)
    assert plane.live(new).reason == f"replaces job {plane.old}"


@pytest.mark.parametrize(("fields", "error", "complaint"), [
    ({"name": "api"}, SpecError, "job 1 is named 'web', and this one 'api'"),
    ({"service": {"replaces": {"job": 77}}}, NotFoundError, "there is no live job 77"),
    ({"user": "bob"}, NotFoundError, "there is no live job 1"),
])  # fmt: skip
def test_what_cannot_be_replaced_by_it_is_refused(
    fields: dict[str, Any], error: type[HALError], complaint: str
) -> None:
    """Whose job it is not is told no more than that there is none."""
    plane = Services()
    with pytest.raises(error, match=complaint):
        plane.replace(**fields)


def test_a_job_that_is_no_service_or_is_held_is_not_replaced() -> None:
    plane = Services()
    (plain,) = plane.submit({"name": "web"})
    spec = spec_from_plain({"command": ["x"], "name": "web", "service": {"replaces": {"job": plain}}})
    with pytest.raises(ConflictError, match="is no service"):
        plane.plane.submit([spec], BY, plane.now_ms)
    plane.plane.hold(plane.old, None, BY, plane.now_ms)
    plane.commit()
    with pytest.raises(ConflictError, match=f"job {plane.old} is held"):
        plane.replace()


def test_a_job_is_replaced_by_one_job_at_a_time() -> None:
    """Nor is one replaced that still takes another's place."""
    plane = Services()
    new = plane.replace()
    spec = spec_from_plain({"command": ["x"], "name": "web", "service": {"replaces": {"job": new}}})
    with pytest.raises(ConflictError, match="is being replaced, or replaces another one"):
        plane.plane.submit([spec], BY, plane.now_ms)
    with pytest.raises(ConflictError, match="is held"):
        plane.replace()


def test_safety_a_submission_that_was_not_committed_holds_nothing() -> None:
    """And what is remembered of it is forgotten."""
    plane = Services()
    about = {"job": plane.old}
    spec = spec_from_plain({"command": ["x"], "name": "web", "service": {"replaces": about}})
    plane.plane.submit([spec], Submitter("alice"), plane.now_ms)
    plane.plane.undo()
    plane.look(2_000)
    assert (plane.live(plane.old).hold, plane.plane._table.replacements) == (False, {})


def test_a_dry_run_replaces_nothing() -> None:
    plane = Services()
    spec = spec_from_plain({"command": ["x"], "name": "web", "service": {"replaces": {"job": plane.old}}})
    plane.plane.submit([spec], BY, plane.now_ms, dry_run=True)
    assert (plane.live(plane.old).hold, plane.plane._table.replacements) == (False, {})


def test_nothing_is_due_without_a_replacement() -> None:
    """What nobody asked for costs nothing."""
    plane = Services()
    assert replacements.next_look_ms(plane.plane._table) == plane.plane.next_due_ms
