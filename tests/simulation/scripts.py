"""Prologs and epilogs of a simulated cluster: what runs, when, how it ends; who looks at closed nodes; checkers.

Scripts take up to longer than a lease; a few fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hal.core.model import StepId, TaskState
from hal.core.model.node_config import NodeSection
from hal.core.model.units import Duration
from hal.daemons.agent.gate_notes import GateNote
from hal.daemons.controller.service.jobs.control import Action
from hal.daemons.controller.service.nodes.nodes import NodeAction, NodesBody
from hal.planes.tasks import Submitter
from hal.runtime.script_end import ScriptEnd
from hal.runtime.virtual_world import VirtualHost
from hal.store.views import JobFilter
from tests.simulation.machine import Run

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PROLOG: Final = "/sim/prolog"
EPILOG: Final = "/sim/epilog"
TIMEOUT: Final = Duration(3_000)
SECTION: Final = NodeSection(prolog=(PROLOG,), epilog=(EPILOG,), prolog_timeout=TIMEOUT, epilog_timeout=TIMEOUT)
FAILS: Final = 0.04
"""Of prologs, and half as many epilogs."""
LOOKS_S: Final = 1.0
"""How often somebody opens closed nodes and releases held jobs."""
OPERATOR: Final = Submitter("operator")


class ScriptRun(NamedTuple):
    """One script that began."""

    gate: str
    step: StepId
    node: str
    boot: int
    begin_s: float
    end_s: float
    """When it ends, unless it is killed or stands still before."""
    failed: bool


class DiskNotes:
    """An agent's notes on the virtual disk."""

    def __init__(self, host: VirtualHost) -> None:
        self.notes: dict[StepId, GateNote] = host.disk.setdefault("gates", {})

    def load(self) -> Sequence[GateNote]:
        return list(self.notes.values())

    def save(self, note: GateNote) -> None:
        self.notes[note.step] = note

    def drop(self, step: StepId) -> None:
        self.notes.pop(step, None)


class Scripts:
    """Those of one host."""

    def __init__(self, host: VirtualHost) -> None:
        self.runs: list[ScriptRun] = []
        self._host = host
        self._rng = host.world.rng(f"scripts {host.name}")
        host.scripts[PROLOG] = host.scripts[EPILOG] = self._begin

    def _begin(self, env: Mapping[str, str]) -> tuple[int, ScriptEnd]:
        rng, gate = self._rng, env["HAL_SCRIPT"]
        step = StepId(int(env["HAL_JOB_ID"]), int(env["HAL_TASK"]), int(env["HAL_ATTEMPT"]), int(env["HAL_NODE_RANK"]))
        takes_ms = rng.choice((rng.randint(1, 30), rng.randint(1, 800), rng.randint(1, 2_500)))
        hangs = rng.random() < FAILS / 4
        failed = rng.random() < (FAILS if gate == "prolog" else FAILS / 2) or hangs
        now_s = self._host.world.loop.time()
        end_s = now_s + (int(TIMEOUT) if hangs else takes_ms) / 1000 / self._host.rate
        self.runs.append(ScriptRun(gate, step, self._host.name, self._host.boots, now_s, end_s, failed))
        self._host.world.note(self._host.name, gate, f"{step} {takes_ms} ms, failed: {failed}")
        return (10**6 if hangs else takes_ms), ScriptEnd(3 if failed else 0, "no scratch" if failed else "")


async def operate(cluster: Cluster, over: asyncio.Event) -> None:
    """Somebody opens whatever is closed and releases whatever is held."""
    nodes = list(cluster.hosts)
    while not over.is_set():
        await asyncio.sleep(LOOKS_S)
        await cluster.ask(lambda api: api.nodes.control(NodeAction.UNCORDON, NodesBody(nodes), OPERATOR))
        await cluster.ask(
            lambda api: api.jobs.control(Action.RELEASE, [], JobFilter(states=(TaskState.HELD,)), OPERATOR)
        )


def check_prologs_come_first(runs: Iterable[Run], scripts: Sequence[ScriptRun]) -> None:
    """No step ran of which the prolog had not succeeded before on that node, in that boot."""
    good = {}
    for one in scripts:
        if one.gate == "prolog" and not one.failed:
            key = (one.step, one.node, one.boot)
            good[key] = min(one.end_s, good.get(key, one.end_s))
    for run in runs:
        end_s = good.get((run.step, run.node, run.boot), float("inf"))
        assert end_s <= run.begin_s + 0.001, f"{run} began; its prolog: {end_s}"


def check_epilogs_follow(cluster: Cluster, runs: Iterable[Run], scripts: Sequence[ScriptRun]) -> None:
    """Whatever ran, and whatever prolog began, was followed by an epilog there, in that boot if it went on.

    A start that is repeated when all is over may let one more prolog begin.
    """
    last: dict[tuple[StepId, str, int], float] = {}
    for one in scripts:
        if one.gate == "epilog":
            key = (one.step, one.node, one.boot)
            last[key] = max(one.begin_s, last.get(key, 0.0))
    for run in runs:
        if run.boot == cluster.hosts[run.node].boots:
            assert last.get((run.step, run.node, run.boot), -1) >= run.end_s - 0.001, f"no epilog followed {run}"
    for one in scripts:
        if one.gate == "prolog" and one.boot == cluster.hosts[one.node].boots and one.begin_s < cluster.settled_s:
            assert last.get((one.step, one.node, one.boot), -1) >= one.begin_s, f"no epilog followed {one}"
