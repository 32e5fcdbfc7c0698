"""A site of which everything changes while planes advise: nodes, jobs, prices, urgencies and favours, drawn at random.

An order and a score read the advice. Used by tests, which look at what is kept of their answers, and by
`tools/decisions.py`, which records what is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import AdviceUpdated, AdviceWithdrawn, Event, KeySpace, NodesChanged, NodeSpec
from hal.core.engine.policies import register
from hal.core.engine.views import advice_on_jobs, node_view, request_of, running
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from hal.core.kernels.structures import layout as L
from tests.core.engine.clusters import ended, engine, job
from tests.core.engine.policy_world import KINDS

STEPS: Final = 60
NODES: Final = 12
SPACES: Final = {"price": KeySpace.NODES, "urgency": KeySpace.JOBS, "favour": KeySpace.ACCOUNTS}
ACCOUNTS: Final = ("x", "y", "z")
MOST_SLICES: Final = 100_000


class Cheap:
    """The lower the price, the better; larger requests mind less."""

    info = PolicyInfo("world-cheap", "score/2", reads_advice=("price",))

    def score(self, request: Request, view: NodeView) -> Any:
        price = np.clip(np.nan_to_num(view.advice["price"], nan=0.5), 0.0, 1.0)
        return 1.0 - price / float(request.amounts[0])


class Urgent:
    """By urgency of jobs and favour of accounts."""

    info = PolicyInfo("world-urgent", "order/3", reads_advice=("urgency", "favour"))

    def key(self, jobs: JobView, view: ClusterView) -> Any:
        return -(1_000 * np.nan_to_num(jobs.advice["urgency"])).astype(np.int64)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> Any:
        return -(1_000 * np.nan_to_num(buckets.advice["favour"])).astype(np.int64)


for _policy in (Cheap(), Urgent()):
    register(_policy)


class AdvisedWorld:
    """One engine, and what happens to it."""

    def __init__(self, seed: int, look: Callable[[State], None] = check_invariants) -> None:
        """`look`: at the state, after each instant at which nothing is left to do."""
        self._rng = Random(seed)
        self._look = look
        backfill = KINDS[seed % len(KINDS)]
        config = EngineConfig(order="world-urgent", placement="world-cheap", backfill=backfill, slice_work=50)
        self.state, self.sink, self.scheduler = engine(config)
        self._jobs = 0
        self._versions = dict.fromkeys(SPACES, 0)

    def play(self) -> None:
        """All of it."""
        happenings = (self._submit, self._submit, self._end, self._change_nodes, *[self._advise] * 4, self._withdraw)
        self._feed(NodesChanged(tuple(self._node(number) for number in range(6))))
        for now_ms in range(STEPS):
            self._rng.choice(happenings)(now_ms)
            if self._rng.random() < 0.6:
                self.scheduler.run(now_ms, MOST_SLICES)
                self._look(self.state)
            else:
                for _ in range(self._rng.randint(0, 3)):
                    self.scheduler.step(now_ms)

    def _feed(self, event: Event) -> None:
        self.scheduler.feed(event)

    def _node(self, number: int) -> NodeSpec:
        return NodeSpec(f"n{number}", {"cpu": self._rng.randint(1, 6)})

    def _change_nodes(self, now_ms: int) -> None:
        number = self._rng.randrange(NODES)
        if f"n{number}" in self.state.nodes.by_name and self._rng.random() < 0.5:
            self._feed(NodesChanged((), (f"n{number}",)))
        else:
            self._feed(NodesChanged((self._node(number),)))

    def _submit(self, now_ms: int) -> None:
        self._jobs += 1
        account, gang = self._rng.choice(ACCOUNTS), self._rng.choice((1, 1, 1, 2))
        times = {"walltime_ms": self._rng.randint(1, 30), "submit_ms": now_ms}
        self._feed(job(self._jobs, self._rng.randint(1, 5), account=account, gang=gang, **times))

    def _end(self, now_ms: int) -> None:
        live = running(self.state)["job"].tolist()
        if live:
            self._feed(ended(self._rng.choice(live)))

    def _advise(self, now_ms: int) -> None:
        kind = self._rng.choice(list(SPACES))
        everybody: dict[str, list[Any]] = {
            "price": [f"n{number}" for number in range(NODES + 2)],
            "urgency": list(range(1, self._jobs + 3)),
            "favour": [*ACCOUNTS, "nobody"],
        }
        keys = self._rng.sample(everybody[kind], self._rng.randint(0, len(everybody[kind])))
        values = np.array([self._rng.choice((0.0, 0.3, 0.8, np.nan)) for _ in keys])
        self._versions[kind] += 1
        whole, expires_ms = self._rng.random() < 0.3, now_ms + self._rng.choice((1, 5, 100))
        cut = self._rng.randint(0, len(keys))
        common: dict[str, Any] = {"whole": whole, "expires_ms": expires_ms}
        for part, more in ((slice(0, cut), True), (slice(cut, None), False)):
            some = tuple(keys[part])
            self._feed(AdviceUpdated(kind, SPACES[kind], self._versions[kind], some, values[part], more=more, **common))

    def _withdraw(self, now_ms: int) -> None:
        self._feed(AdviceWithdrawn((self._rng.choice(list(SPACES)),)))


def check_answers(state: State) -> None:
    """What is kept of the policies' answers is what they say of advice as it is now.

    Raises AssertionError where it is not.
    """
    check_invariants(state)
    score, order, plugins = state.plugins.score, state.plugins.order, state.plugins
    assert score is not None
    assert order is not None
    assert not plugins.outdated_lines
    assert not state.advice.due_jobs
    view = node_view(state, reads=score.info.reads_advice)
    for line, shape in enumerate(plugins.scored_shapes if plugins.scored_at >= 0 else ()):
        spec = state.catalogue.shape_specs[shape]
        if spec is not None and plugins.scored_classes[line] < 0 and state.catalogue.shapes[shape, L.S_SCORES] == line:
            expected = np.rint(1e6 * score.score(request_of(state, spec), view)).astype(np.int64)
            there = np.array(sorted(state.nodes.by_name.values()), np.int64)
            assert state.scratch.scores[line, there].tolist() == expected[there].tolist()
    top = int(state.meta[L.M_ENTRY_TOP])
    waiting = state.work.entries[:top][state.work.entries[:top, L.E_WHERE] != L.WHERE_FREE]
    urgency = advice_on_jobs(state, waiting[:, L.E_JOB], ("urgency",))["urgency"]
    assert waiting[:, L.E_KEY].tolist() == (-(1_000 * np.nan_to_num(urgency)).astype(np.int64)).tolist()
