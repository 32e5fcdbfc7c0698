"""A controller that counts nothing for metrics: what `observability_quiet.py` compares the real one with."""

from __future__ import annotations

import runpy
from collections.abc import Sequence

from hal.daemons.controller.metrics.book import MetricsBook
from hal.planes.tasks.live.figures import GroupFigures, no_figures
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import Work
from hal.planes.tasks.table import commit
from hal.planes.tasks.table.draft import Draft
from hal.runtime.metrics import registry


def no_figures_of(draft: Draft, changed: Sequence[LiveJob], now_ms: int) -> Work[GroupFigures]:
    """Nothing has changed."""
    yield from ()
    return no_figures()


def nothing(*_: object, **__: object) -> None:
    """In place of what counts."""


vars(commit)["figures_of"] = no_figures_of
MetricsBook.count_group = nothing  # type: ignore[method-assign]
for kind in vars(registry).values():
    for name in ("add", "observe"):
        if isinstance(kind, type) and kind.__module__ == registry.__name__ and name in vars(kind):
            setattr(kind, name, nothing)

if __name__ == "__main__":
    runpy.run_module("hal.daemons.controller", run_name="__main__", alter_sys=True)
