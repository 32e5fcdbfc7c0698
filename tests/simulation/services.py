"""Services of gates in a simulated cluster: what they answer, when they are away; jobs that name them; checkers.

A service may make an attempt wait for up to longer than a lease, be absent, slow, silent or malformed for a while, and
refuse an attempt on a node for good where the gate's policy says that it goes elsewhere.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from hal.core.model import Duration, HALError, JobGate, StepId
from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.gate_protocol import (
    ANSWER_MS,
    GateAnswer,
    GateAsk,
    GateRequest,
    GateVerdictWord,
    decode_request,
    encode_answer,
)
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain
from hal.planes.tasks import JobPatch, Submitter
from hal.runtime.virtual_world import VirtualHost
from tests.simulation.machine import Run
from tests.simulation.workload import Wanted

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

GATE: Final = "stage"
POLICY: Final[Policy] = policy_from_plain({"gates": {GATE: {}}})
GATED: Final = 0.7
"""Of jobs."""
AWAY: Final = 0.1
"""How likely a question finds the service away, and so do all for a while."""
AWAY_S: Final = 3.0
SILENT: Final = 0.1
"""Of slow questions: for longer than an answer may take."""
LONGEST_MS: Final = 2_500
"""Until an attempt is let in."""
REFUSES: Final = 0.15
"""Attempts on a node, where they may go elsewhere."""
LOOKS_S: Final = 1.0
OPERATOR: Final = Submitter("operator")
Key = tuple[StepId, GatePhase]


class LetIn(NamedTuple):
    """One answer that let a step continue."""

    step: StepId
    phase: GatePhase
    node: str
    boot: int
    at_s: float


class Services:
    """The service of one host."""

    def __init__(self, host: VirtualHost) -> None:
        self.let_in: list[LetIn] = []
        self._host = host
        self._rng = host.world.rng(f"services {host.name}")
        self._ready_s: dict[Key, float] = {}
        """When an attempt is let in; infinity: never."""
        self._away_s = 0.0
        host.services[f"{GATE}.sock"] = self._serve

    def _serve(self, line: bytes) -> tuple[int, bytes]:
        now_s, rng = self._host.world.loop.time(), self._rng
        if now_s >= self._away_s and rng.random() < AWAY:
            self._away_s = now_s + AWAY_S * rng.random()
        if now_s < self._away_s:
            silent_ms = 2 * ANSWER_MS if rng.random() < SILENT else rng.randint(1, 1_500)
            return rng.choice(((1, b""), (silent_ms, b""), (1, b"what?\n")))
        request = decode_request(line)
        step = StepId(request.job, request.task, request.attempt, request.rank)
        key = (step, request.phase)
        if request.ask is GateAsk.CANCEL:
            self._ready_s.pop(key, None)
            return 1, encode_answer(GateAnswer(state=GateVerdictWord.READY))
        return rng.randint(0, 20), encode_answer(self._decide(request, step, key, now_s))

    def _decide(self, request: GateRequest, step: StepId, key: Key, now_s: float) -> GateAnswer:
        rng = self._rng
        if key not in self._ready_s:
            waits_ms = rng.choice((0, 0, 0, rng.randint(1, 300), rng.randint(1, LONGEST_MS)))
            never = GatePolicy(request.argument) is GatePolicy.ELSEWHERE and rng.random() < REFUSES
            self._ready_s[key] = float("inf") if never else now_s + waits_ms / 1000
        if self._ready_s[key] == float("inf"):
            return GateAnswer(state=GateVerdictWord.REFUSED, reason="no space")
        if now_s < self._ready_s[key]:
            return GateAnswer(state=GateVerdictWord.WAITING, reason="staging", again_ms=rng.choice((0, 50, 500)))
        self.let_in.append(LetIn(step, request.phase, self._host.name, self._host.boots, now_s))
        return GateAnswer(state=GateVerdictWord.READY)


def with_gates(rng: random.Random, wanted: Sequence[Wanted]) -> list[Wanted]:
    """The same jobs, most of which name the gate; its argument is its policy. Gangs wait for it."""
    out = []
    for one in wanted:
        gates: list[JobGate] = []
        if rng.random() < GATED:
            elsewhere = one.spec.nodes == 1 and rng.random() < 0.5
            gates.append(_gate(GatePhase.PREPARING, GatePolicy.ELSEWHERE if elsewhere else GatePolicy.WAIT))
        if rng.random() < GATED / 2:
            gates.append(_gate(GatePhase.FINALISING, GatePolicy.WAIT))
        out.append(one._replace(spec=replace(one.spec, gates=tuple(gates))))
    return out


def _gate(phase: GatePhase, policy: GatePolicy) -> JobGate:
    return JobGate(name=GATE, phase=phase, policy=policy, deadline=Duration(3_600_000), argument=policy.value)


async def clear_exclusions(cluster: Cluster, ids: Sequence[int], over: asyncio.Event) -> None:
    """Somebody lets jobs run everywhere again, which gates may have sent away from all nodes."""
    while not over.is_set():
        await asyncio.sleep(LOOKS_S)
        for job in list(ids):
            row = await cluster.ask(lambda api, job=job: api.jobs.row(job))  # type: ignore[misc]
            if row.end_ms is None and row.spec.exclude:
                await _clear(cluster, job)


async def _clear(cluster: Cluster, job: int) -> None:
    try:
        await cluster.ask(lambda api: api.jobs.update(job, JobPatch(exclude=()), OPERATOR))
    except HALError as error:
        cluster.world.note("operator", "no", str(error))  # it has ended meanwhile


def check_gates_come_first(
    runs: Iterable[Run], let_in: Sequence[LetIn], wanted: dict[int, tuple[JobGate, ...]]
) -> None:
    """No step of a job with a preparing gate ran that was not let in before, on that node, in that boot."""
    first: dict[tuple[StepId, str, int], float] = {}
    for one in let_in:
        if one.phase is GatePhase.PREPARING:
            key = (one.step, one.node, one.boot)
            first[key] = min(one.at_s, first.get(key, one.at_s))
    for run in runs:
        if any(gate.phase is GatePhase.PREPARING for gate in wanted[run.step.job]):
            at_s = first.get((run.step, run.node, run.boot), float("inf"))
            assert at_s <= run.begin_s + 0.001, f"{run} began; its gate let it in at {at_s}"


def check_gates_come_last(cluster: Cluster, let_in: Sequence[LetIn], wanted: dict[int, tuple[JobGate, ...]]) -> None:
    """Every attempt of a job with a finalising gate that succeeded was let go on each of its nodes, after it ended."""
    let_go = {(one.step, one.node): one.at_s for one in let_in if one.phase is GatePhase.FINALISING}
    store = cluster.store()
    for job, gates in wanted.items():
        if not any(gate.phase is GatePhase.FINALISING for gate in gates):
            continue
        for row in store.attempts(job, limit=1_000):
            if row.state.value != "succeeded":
                continue
            for rank, node in enumerate(row.nodes):
                step = StepId(job, row.task, row.attempt, rank)
                ends_s = [run.end_s for run in cluster.runs if run.step == step and run.node == node]
                assert let_go.get((step, node), -1) >= max(ends_s) - 0.001, f"{step} succeeded, and was not let go"
