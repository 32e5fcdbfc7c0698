"""Jobs whose command runs on the first of their nodes alone: what the others run, and what ends and decides them."""

from __future__ import annotations

from hal.core.model import StepId, TaskState
from hal.planes.tasks.attempts.step_templates import HOLDING
from hal.wire.frames.agent_keeper import ExitCause, StopReason
from tests.planes.tasks.small_plane import SmallPlane

SPEC = {
    "nodes": 2,
    "first_node": True,
    "command": ["./steps"],
    "stdout": "out",
    "signal": {"name": "USR1", "before": 1},
}


def test_the_other_nodes_are_held_by_a_program_of_hals() -> None:
    """Which writes into no file of the job's, and gets no signal that the job asks for."""
    plane = SmallPlane(nodes=2)
    (job,) = plane.submit({**SPEC, "walltime": 60_000})
    orders = plane.start((job, 0)).orders
    found = {}
    for node in orders.values():
        for start in node.starts:
            template = node.templates[start.template]
            found[start.step.rank] = (template.command, template.stdout, template.signal, template.walltime_ms)
    assert found == {0: (("./steps",), "out", "USR1", 60_000_000), 1: (HOLDING, "", "", 60_000_000)}


def test_they_are_ended_when_the_command_has_succeeded() -> None:
    """And the attempt has, although their programs were ended."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2, "first_node": True})
    plane.start((job, 0))
    change = plane.end(job)
    assert change.orders["n2"].stops == {StopReason.SIBLING: [StepId(job, 0, 1, 1)]}
    change = plane.end(job, rank=1, code=143, cause=ExitCause.CANCELLED)
    assert change.ended[0].state is TaskState.SUCCEEDED


def test_a_held_node_that_fails_while_the_command_runs_decides() -> None:
    """The command is ended, and did not succeed."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2, "first_node": True})
    plane.start((job, 0))
    change = plane.end(job, rank=1, code=137)
    assert change.orders["n1"].stops == {StopReason.SIBLING: [StepId(job, 0, 1, 0)]}
    change = plane.end(job, code=143, cause=ExitCause.CANCELLED)
    assert (change.ended[0].state, change.ended[0].exit_code) == (TaskState.FAILED, 137)
