"""`pack`: a job is of a class within one domain until it has waited as long as it says, then of one that is not."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.engine.events import INF, JobsCancelled, JobsSubmitted
from hal.core.model import EventKind, SpecError
from hal.core.model.topology.files import topology_from_text
from hal.planes.tasks import Change, JobPatch
from hal.planes.tasks.slices import finished
from hal.store.operations import EditJobs
from hal.wire.frames.agent_keeper import ExitCause
from tests.planes.tasks.small_plane import BY, SmallPlane

SITE = topology_from_text('levels = ["zone", "rack"]\n[nodes]\nn1 = "east/r1"\nn2 = "east/r2"\n', "site.toml")
PAIR: dict[str, Any] = {"nodes": 2, "pack": "rack:10m"}
WAIT_MS = 600_000


def due(plane: SmallPlane) -> Change:
    """What is due now is done."""
    finished(plane.plane.carrying_out_due(plane.now_ms))
    return plane.commit()


def asked(plane: SmallPlane, job: int) -> tuple[str, str]:
    """What the job's spec and its class say."""
    live = plane.live(job)
    return live.spec.pack, live.request.within


def test_it_is_within_the_level_until_its_wait_is_over() -> None:
    """Not a millisecond less: then it waits in the engine again, with its place, as one that may be anywhere."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    assert asked(plane, job) == ("rack:10m", "rack")
    assert plane.plane.next_due_ms == plane.now_ms + WAIT_MS
    plane.now_ms += WAIT_MS - 1
    assert due(plane).empty
    plane.now_ms += 1
    change = due(plane)
    assert asked(plane, job) == ("", "")
    assert plane.plane.next_due_ms == INF
    assert [one.spec for edits in change.operations if isinstance(edits, EditJobs) for one in edits.rows] == [
        plane.live(job).spec
    ]
    withdrawn, submitted = change.engine
    assert isinstance(withdrawn, JobsCancelled)
    assert isinstance(submitted, JobsSubmitted)
    (row,) = submitted.rows
    assert (submitted.classes[row["class_index"]].within, row["submit_ms"]) == ("", 1_000)


def test_the_wait_counts_from_when_it_may_start() -> None:
    """After what it depends on has ended, and not before its begin."""
    plane = SmallPlane(topology=SITE)
    (first,) = plane.submit({})
    (second,) = plane.submit({**PAIR, "dependencies": [{"job": str(first)}]})
    (later,) = plane.submit({**PAIR, "begin_at_ms": 50_000})
    assert plane.plane.next_due_ms == 50_000 + WAIT_MS
    plane.start((first, 0))
    plane.now_ms = 7_000
    plane.end(first)
    assert plane.plane.next_due_ms == 7_000 + WAIT_MS
    plane.now_ms = 7_000 + WAIT_MS
    due(plane)
    assert (asked(plane, second), asked(plane, later)) == (("", ""), ("rack:10m", "rack"))


def test_what_has_started_keeps_its_wish_and_gives_it_up_when_it_waits_again_too_late() -> None:
    """Its domain is its own while it runs; a requeue after the time is over waits for none."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit({**PAIR, "retries": 3})
    plane.start((job, 0))
    assert plane.plane.next_due_ms == INF
    plane.now_ms += 2 * WAIT_MS
    assert due(plane).empty
    plane.end(job, rank=0, code=1)
    plane.end(job, rank=1, cause=ExitCause.EXITED, code=1)
    assert plane.plane.next_due_ms <= plane.now_ms
    due(plane)
    assert asked(plane, job) == ("", "")


def test_a_commit_that_fails_leaves_the_wish_and_its_time() -> None:
    """It is given up in the next try."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    plane.now_ms += WAIT_MS
    finished(plane.plane.carrying_out_due(plane.now_ms))
    plane.plane.seal(plane.now_ms)
    assert plane.plane.next_due_ms == INF
    plane.plane.undo()
    assert asked(plane, job) == ("rack:10m", "rack")
    assert plane.plane.next_due_ms == plane.now_ms
    due(plane)
    assert asked(plane, job) == ("", "")


def test_a_controller_that_starts_again_knows_when_it_is_over() -> None:
    """What the engine is fed anew is listed anew."""
    plane = SmallPlane(topology=SITE)
    plane.submit(PAIR)
    table = plane.plane._table
    table.packs._heap.clear()
    table.packs._listed.clear()
    assert plane.plane.next_due_ms == INF
    plane.plane.engine_events()
    assert plane.plane.next_due_ms == plane.now_ms + WAIT_MS


def test_jobs_in_columns_give_it_up_too() -> None:
    """They are no objects while they only wait."""
    plane = SmallPlane(topology=SITE)
    plane.plane._table.jobs.max_objects = 0
    jobs = plane.submit(*[PAIR] * 3, {"nodes": 2})
    plane.plane.keep()
    table = plane.plane._table
    assert table.jobs.count_in_columns == 4
    table.packs._heap.clear()
    table.packs._listed.clear()
    plane.plane.engine_events()
    plane.now_ms += WAIT_MS
    due(plane)
    assert [asked(plane, job) for job in jobs] == [("", "")] * 4


def test_the_feed_says_that_it_was_given_up_and_what_was_asked_for() -> None:
    """As a change that a person makes."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    plane.now_ms += WAIT_MS
    finished(plane.plane.carrying_out_due(plane.now_ms))
    (noted,) = [one for one in plane.plane._table.draft.events(plane.now_ms) if one.kind is EventKind.JOBS_CHANGED]
    assert (noted.cause, list(noted.jobs)) == ("pack", [job])
    assert noted.payload == {"fields": {"pack": ""}, "before": {"pack": "rack:10m"}}


def test_one_node_waits_for_nothing() -> None:
    """It is within one rack wherever it is; as a gang it is packed."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit({"pack": "rack:10m"})
    assert (asked(plane, job), plane.plane.next_due_ms) == (("rack:10m", ""), INF)
    plane.plane.update(job, JobPatch(nodes=2), BY, plane.now_ms)
    assert (asked(plane, job), plane.plane.next_due_ms) == (("rack:10m", "rack"), plane.now_ms + WAIT_MS)


def test_a_change_lengthens_shortens_or_ends_the_wait() -> None:
    """It counts from when the job could first start, whenever it is changed."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    plane.plane.update(job, JobPatch(pack="zone:1h"), BY, plane.now_ms)
    plane.commit()
    assert (asked(plane, job), plane.plane.next_due_ms) == (("zone:1h", "zone"), plane.now_ms + 3_600_000)
    plane.plane.update(job, JobPatch(pack=""), BY, plane.now_ms)
    plane.commit()
    assert (asked(plane, job), plane.plane.next_due_ms) == (("", ""), INF)
    with pytest.raises(SpecError, match="pack: no level 'pod'"):
        plane.plane.update(job, JobPatch(pack="pod:5m"), BY, plane.now_ms)


def test_each_task_that_waits_of_an_array_gives_it_up() -> None:
    """Those that run stay where they are, and wait anew as what the job is then; of one with max_running the engine
    hears only of those that may start."""
    for array in ("0-3", "0-3%2"):
        plane = SmallPlane(topology=SITE)
        (job,) = plane.submit({**PAIR, "array": array, "retries": 1})
        plane.start((job, 0))
        plane.now_ms += WAIT_MS
        due(plane)
        assert asked(plane, job) == ("", "")
        plane.start((job, 1))
        assert sorted(plane.live(job).active) == [0, 1]
        for rank in (0, 1):
            plane.end(job, 0, rank=rank, code=1)
        assert sorted(plane.live(job).active) == [1]


def test_why_says_how_long_it_waits_and_afterwards_nothing_of_it() -> None:
    """With the time that is left."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    plane.now_ms += 60_000
    told = plane.plane.why(plane.live(job), plane.now_ms).message
    assert told.endswith("It waits up to 10m for one rack, then for nodes anywhere (in 9m)")
    plane.now_ms += WAIT_MS
    due(plane)
    assert "rack" not in plane.plane.why(plane.live(job), plane.now_ms).message
