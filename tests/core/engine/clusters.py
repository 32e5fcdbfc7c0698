"""What tests of the engine need again and again: a small cluster, jobs in one line, and who runs where."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from hal.core.engine import State, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import END, AttemptsEnded, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import rows_of_run, running

Node = TypeVar("Node", bound=Hashable)


class Starts:
    """A sink that remembers plans."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def accept(self, plan: Plan) -> None:
        self.plans.append(plan)

    def jobs(self) -> list[int]:
        """Jobs in the order of their starts, one for each task."""
        return [int(start["job"]) for plan in self.plans for start in plan.starts]


def engine(config: EngineConfig, *nodes: NodeSpec) -> tuple[State, Starts, Scheduler]:
    """An engine of these nodes."""
    state = new_state(config)
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged(nodes))
    return state, sink, scheduler


def job(
    number: int,
    cpu: int,
    *,
    gang: int = 1,
    constraints: tuple[Requirement, ...] = (),
    account: str = "",
    user: str = "",
    qos: str = "",
    **columns: Any,
) -> JobsSubmitted:
    """One job."""
    rows = submit_rows(1)
    rows["job"] = number
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(
        rows, (ClassSpec({"cpu": cpu}, gang, constraints),), (OwnerSpec(account=account, user=user, qos=qos),)
    )


def ended(*jobs: int) -> AttemptsEnded:
    """The first attempts of these jobs' first tasks ended."""
    rows = np.zeros(len(jobs), END)
    rows["job"], rows["attempt"] = jobs, 1
    return AttemptsEnded(rows)


def places(state: State) -> dict[int, list[str]]:
    """The nodes of each running job."""
    return {
        int(run["job"]): [state.node_name(row) for row in rows_of_run(state, int(run["run"]))] for run in running(state)
    }


def matched(fits: dict[Node, set[int]], names: Sequence[Node], wanted: Sequence[int]) -> bool:
    """Whether each of what is wanted can have a node of its own: augmenting paths."""
    taken: dict[Node, int] = {}

    def place(at: int, tried: set[Node]) -> bool:
        for name in names:
            if name not in tried and at in fits[name]:
                tried.add(name)
                if name not in taken or place(taken[name], tried):
                    taken[name] = at
                    return True
        return False

    return all(place(at, set()) for at in wanted)
