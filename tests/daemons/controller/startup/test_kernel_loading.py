"""Loading kernels works whatever the policies of other people decide meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.policies import register
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from hal.core.kernels.structures.jit import stamp_of_all
from hal.daemons.controller.startup.kernel_choice import compiled
from hal.daemons.controller.startup.kernel_loading import warm

Key = Callable[[JobView, ClusterView], NDArray[np.int64]]


class By:
    """An order by one column."""

    def __init__(self, name: str, key: Key) -> None:
        self.info = PolicyInfo(name=name, interface="order/2")
        self.key = key

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return np.zeros(buckets.class_id.size, np.int64)


class Nowhere:
    """A filter that admits no node."""

    info = PolicyInfo(name="warming-nowhere", interface="filter/1")

    def mask(self, request: Request, view: NodeView) -> NDArray[np.bool_]:
        return np.zeros(view.rows, np.bool_)


for _order in (
    By("warming-widest", lambda jobs, view: -jobs.nodes),
    By("warming-newest", lambda jobs, view: -jobs.job),
    By("warming-oldest", lambda jobs, view: jobs.job),
):
    register(_order)
register(Nowhere())


@pytest.mark.parametrize("backfill", list(Backfill))
@pytest.mark.parametrize("order", ["fcfs", "sjf", "priority", "warming-widest", "warming-newest", "warming-oldest"])
@pytest.mark.parametrize("filters", [(), ("warming-nowhere",)])
def test_every_order_and_filter_can_be_started_with(order: str, backfill: Backfill, filters: tuple[str, ...]) -> None:
    """The gang first, the last job first, nothing at all: the controller's start does not depend on it."""
    warm(EngineConfig(order=order, backfill=backfill, filters=filters), lambda _: None)


def test_kernels_count_as_compiled_when_all_of_them_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with some of them does not: what is missing would be compiled while jobs wait."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)
    (tmp_path / "easy.cycle-1.py311.1.nbi").touch()
    assert not compiled()
    stamp_of_all().touch()
    assert compiled()
