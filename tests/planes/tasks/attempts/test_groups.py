"""Jobs with several groups of nodes in the plane: one task and one attempt; to the engine each group is a task."""

from __future__ import annotations

import pytest

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.views import rows_of_run, running
from hal.core.model import Duration, SpecError, StepId, TaskState
from hal.core.model.policy import Policy, PreemptMode, Qos
from hal.core.model.topology.tree import Domain, Topology
from hal.planes.tasks.jobs.patches import JobPatch
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, Usage
from tests.planes.tasks.gpu_site import BY, GpuSite

GROUPS = [{"name": "driver", "request": {"cpu": 1}}, {"name": "gpu", "nodes": 2, "request": {"cpu": 2, "gpu": 4}}]


def known(site: GpuSite) -> dict[tuple[int, int], tuple[int, list[str]]]:
    """What the engine knows to run: attempt and nodes by job and task."""
    state = site.engine.state
    check_invariants(state)
    return {
        (int(run["job"]), int(run["task"])): (
            int(run["attempt"]),
            [state.node_name(row) for row in rows_of_run(state, int(run["run"]))],
        )
        for run in running(state)
    }


def started(site: GpuSite) -> int:
    """A job with both groups, which runs."""
    job = site.submit(groups=GROUPS)
    site.turn()
    return job


def test_all_groups_are_one_attempt_and_only_the_gpu_nodes_hold_gpus() -> None:
    """Nodes and GPUs are in rank order; the engine has a task for each group."""
    site = GpuSite(nodes=3)
    job = started(site)
    (attempt,) = site.plane.staged_job(job).active.values()
    assert attempt.nodes == ("n1", "n2", "n3")
    assert [len(held) for held in attempt.gpus] == [0, 4, 4]
    assert known(site) == {(job, 0): (1, ["n1"]), (job, 1): (1, ["n2", "n3"])}


def test_steps_of_a_group_have_its_amounts_and_are_told_its_name() -> None:
    """The template of the driver's node is not that of the others."""
    site = GpuSite(nodes=3)
    job = site.submit(groups=GROUPS)
    orders = site.turn().orders
    templates = {start.step.rank: node.templates[start.template] for node in orders.values() for start in node.starts}
    told = {rank: (one.env["HAL_GROUP"], one.cpu_milli, one.gpu_milli) for rank, one in templates.items()}
    assert told == {0: ("driver", 1_000, 0), 1: ("gpu", 2_000, 4_000), 2: ("gpu", 2_000, 4_000)}
    assert templates[0].env["HAL_GROUPS"] == "driver:1,gpu:2"
    assert job in site.plane.live_jobs()


def test_a_controller_that_starts_again_knows_all_groups() -> None:
    """While it waits and while it runs; an undone commit leaves nothing of it."""
    site = GpuSite(nodes=3)
    blocker = site.submit(nodes=2, request={"gpu": 4})
    site.turn()
    job = site.submit(groups=GROUPS)
    site.turn()
    site.restart()
    site.turn()
    assert known(site).keys() == {(blocker, 0)}
    site.plane.cancel(blocker, None, BY, site.now_ms)
    site.turn()
    for rank in range(2):
        end(site, blocker, rank, ExitCause.CANCELLED)
    assert known(site).keys() == {(job, 0), (job, 1)}
    before = known(site)
    site.restart()
    assert known(site) == before


def test_an_undone_start_leaves_nothing_of_any_group() -> None:
    """The commit fails: all groups wait as before, and start again together."""
    site = GpuSite(nodes=3)
    job = site.submit(groups=GROUPS)
    site.turn(fails=True)
    assert not known(site)
    job = site.submit(groups=GROUPS)
    site.turn()
    assert known(site).keys() == {(job, 0), (job, 1)}


def test_a_start_that_one_node_refuses_is_taken_back_whole() -> None:
    """A node of the second group refuses: all steps are stopped, the job waits, and begins as the next attempt."""
    site = GpuSite(nodes=3)
    job = started(site)
    site.plane.record_refusals("n3", [Refusal(StepId(job, 0, 1, 2), "overloaded", "no room")], site.now_ms)
    site.turn()
    for rank, name in enumerate(("n1", "n2")):
        exits = [StepExit(StepId(job, 0, 1, rank), ExitCause.CANCELLED, 143, 0, 1, 1, Usage(1, 1, 1, 0, 0, 0), "")]
        site.plane.record_exits(name, exits, site.now_ms)
    site.now_ms += 600_000
    site.turn()
    assert {attempt for attempt, _ in known(site).values()} == {2}
    assert known(site).keys() == {(job, 0), (job, 1)}


def test_a_lost_node_takes_the_whole_attempt_and_the_job_waits_for_all_its_nodes() -> None:
    """Two nodes are left: none of its groups runs on them, until a third one joins."""
    site = GpuSite(nodes=3)
    job = started(site)
    site.plane.record_silence("n2", "gone", site.now_ms, site.now_ms)
    site.plane.fence_node("n2", BY, site.now_ms, machine_gone=True)
    site.turn()
    for rank, name in ((0, "n1"), (2, "n3")):
        exits = [StepExit(StepId(job, 0, 1, rank), ExitCause.CANCELLED, 143, 0, 1, 1, Usage(1, 1, 1, 0, 0, 0), "")]
        site.plane.record_exits(name, exits, site.now_ms)
    site.turn()
    assert not known(site)
    site.names.append("n4")
    site.join("n4")
    site.now_ms += 600_000
    site.turn()
    assert known(site).keys() == {(job, 0), (job, 1)}


def test_held_released_and_cancelled_as_one() -> None:
    """Held, no group starts; released, both do; cancelled, none is left."""
    site = GpuSite(nodes=3)
    job = site.submit(groups=GROUPS, hold=True)
    site.turn()
    assert not known(site)
    site.plane.release(job, None, BY, site.now_ms)
    site.turn()
    assert known(site).keys() == {(job, 0), (job, 1)}
    other = site.submit(groups=GROUPS)
    site.turn()
    site.plane.cancel(other, None, BY, site.now_ms)
    site.turn()
    check_invariants(site.engine.state)
    assert site.plane.staged_job(other) is None


def test_priority_of_all_groups_changes_and_their_nodes_do_not() -> None:
    """What a job with groups asks for is fixed at submission."""
    site = GpuSite(nodes=3)
    started(site)
    job = site.submit(groups=GROUPS)
    site.turn()
    site.plane.update(job, JobPatch(priority=-5), BY, site.now_ms)
    site.turn()
    check_invariants(site.engine.state)
    with pytest.raises(SpecError, match="fixed at submission"):
        site.plane.update(job, JobPatch(nodes=2), BY, site.now_ms)


@pytest.mark.parametrize("backfill", [Backfill.CONSERVATIVE, Backfill.TOP_K])
def test_groups_start_where_backfill_plans_ahead(backfill: Backfill) -> None:
    """The second job waits for the end of the first, as a whole; a restart changes nothing."""
    site = GpuSite(nodes=3, config=EngineConfig(backfill=backfill))
    first = started(site)
    second = site.submit(groups=GROUPS)
    site.turn()
    site.restart()
    site.turn()
    assert known(site).keys() == {(first, 0), (first, 1)}
    site.end(first)
    site.turn()
    assert known(site).keys() == {(second, 0), (second, 1)}


def end(site: GpuSite, job: int, rank: int, cause: ExitCause) -> None:
    """A step has ended."""
    attempt = site.plane.staged_job(job).active[0]
    step = StepId(job, 0, attempt.attempt, rank)
    usage = Usage(1, 1, 1, 0, 0, 0)
    site.plane.record_exits(attempt.nodes[rank], [StepExit(step, cause, 143, 0, 1, 1, usage, "")], site.now_ms)
    site.turn()


def test_the_states_of_the_job_are_those_of_its_one_task() -> None:
    """It has one task, which runs."""
    site = GpuSite(nodes=3)
    job = started(site)
    counts = site.plane.staged_job(job).counts
    assert (site.plane.staged_job(job).spec.tasks, counts.active, counts.pending) == (1, 1, 0)
    assert site.plane.staged_job(job).state in (TaskState.ALLOCATED, TaskState.PENDING)


PREEMPTING = Policy(
    qos={
        "urgent": Qos(name="urgent", priority=10, preempts=("low",)),
        "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(5_000)),
    }
)


def test_groups_preempt_and_start_as_one_attempt_when_all_of_it_has_left() -> None:
    """Low work has the GPUs of two of three nodes, and the driver needs none. One low job leaves, all groups wait."""
    site = GpuSite(nodes=3, policy=PREEMPTING)
    low = [site.submit(request={"gpu": 4, "cpu": 8}, qos="low") for _ in range(2)]
    site.submit(request={"cpu": 1})
    site.turn()
    site.now_ms += 60_000
    job = site.submit(groups=[GROUPS[0], {**GROUPS[1], "nodes": 2}], qos="urgent")
    site.turn()
    stopped = [number for (number, _), attempt in site.running().items() if attempt.stopping]
    assert len(stopped) == 1
    assert known(site).keys() >= {(job, 0), (job, 1)}  # they are claimed
    assert (job, 0) not in site.running()
    end(site, stopped[0], 0, ExitCause.PREEMPTED)
    attempt = site.running()[job, 0]
    assert (attempt.attempt, len(attempt.nodes), [len(held) for held in attempt.gpus]) == (1, 3, [0, 4, 4])
    assert set(low) - set(stopped) <= {number for number, _ in site.running()}


RACKS = Topology(
    levels=("rack",), domains=(Domain("r1", 0, -1), Domain("r2", 0, -1)), places={"n1": 0, "n2": 1, "n3": 1, "n4": 1}
)


def in_racks() -> GpuSite:
    """One node in r1, three in r2."""
    return GpuSite(nodes=4, config=EngineConfig(levels=("rack",)), topology=RACKS)


def test_all_groups_are_within_one_rack() -> None:
    """The driver would fit on n1, which is no place for the others."""
    site = in_racks()
    job = site.submit(groups=GROUPS, within="rack")
    site.turn()
    assert known(site) == {(job, 0): (1, ["n2"]), (job, 1): (1, ["n3", "n4"])}
    with pytest.raises(SpecError, match="no rack could hold all of them"):
        site.submit(groups=[GROUPS[0], {**GROUPS[1], "nodes": 3}], within="rack")


def test_packed_groups_give_up_their_rack_together() -> None:
    """Two nodes of r2 are taken: after 10 s of waiting for one rack, one node of each rack is used."""
    site = in_racks()
    blocker = site.submit(nodes=2, request={"gpu": 4, "cpu": 64}, within="rack")
    site.turn()
    job = site.submit(groups=[GROUPS[0], {**GROUPS[1], "nodes": 1}], pack="rack:10s")
    site.turn()
    assert known(site).keys() == {(blocker, 0)}
    site.restart()
    site.turn()
    site.now_ms += 10_000
    for _ in site.plane.carrying_out_due(site.now_ms):
        pass
    site.turn()
    on = [node for (number, _), (_, nodes) in known(site).items() if number == job for node in nodes]
    assert len(on) == 2
    assert "n1" in on


def test_groups_are_apart_from_other_work_and_spread_over_racks() -> None:
    """Jobs of the same label that are apart by node share none, so the third one waits; the first one's nodes are in
    both racks. A controller that starts again knows the same."""
    site = in_racks()
    groups = [{"name": "driver", "request": {"cpu": 1}}, {"name": "worker", "request": {"cpu": 2}}]
    wishes = {"labels": {"app": "web"}, "apart": ["app@node"], "spread": "rack"}
    jobs = [site.submit(groups=groups, **wishes) for _ in range(3)]
    for _ in range(3):
        site.turn()
    before = known(site)
    assert before.keys() == {(job, group) for job in jobs[:2] for group in (0, 1)}  # all four nodes have one
    assert {RACKS.places[node] for (job, _), (_, names) in before.items() if job == jobs[0] for node in names} == {0, 1}
    assert len({node for _, names in before.values() for node in names}) == 4
    site.restart()
    site.turn()
    assert known(site) == before
