"""Compile every kernel into the cache: what the install step calls, so that no daemon compiles while jobs wait.

Cold a minute in one process, 45 s with two, one for each of SHARES; warm about a second. A shell
that wants the cache elsewhere sets NUMBA_CACHE_DIR before the first import of hal.core.kernels (see jit).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

import numpy as np

from hal.core.engine.rules.configuration import new_state
from hal.core.engine.state import NO_KEYS
from hal.core.kernels.nodes.rows import count_node, recount
from hal.core.kernels.passes.node_scores import WEIGHED, weigh
from hal.core.kernels.rules.ledgers import recharge
from hal.core.kernels.rules.shares import rebase_shares, renew_factors, renew_offsets
from hal.core.kernels.structures.jit import bind
from hal.core.kernels.structures.slots import look_up, rehash
from hal.core.kernels.work.pending import rebuild
from hal.core.kernels.work.running import retime

SHARES: Final = (
    ("easy", "submit", "change", "advance", "end", "refuse", "assume", "adopt", "apply_moves"),
    ("conservative", "learn", "note", "cancel", "ready", "resumable", "seek", "seek_groups", "empty", "lender"),
)
"""All kernels in two parts that take about as long to compile: an install step on two cores runs a process for each."""
STEPS: Final = sum(map(len, SHARES)) + 12
"""Lines that `compile_all` reports when it compiles both."""


def compile_all(report: Callable[[str], None] | None = None, *, share: int | None = None) -> None:
    """Compile (or load) every kernel, or one of SHARES; `report` gets one line before each that names it."""
    # numba's objects live until the end; looking for garbage among them takes a tenth of the time.
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        _compile_all(report, share)
    finally:
        gc.set_threshold(*thresholds)


def _compile_all(report: Callable[[str], None] | None, share: int | None) -> None:
    s = new_state(on_compile=report, kernels=SHARES[0] + SHARES[1] if share is None else SHARES[share])
    table = np.zeros((0, 3), np.int64)
    for kernel, arguments in (
        (recount, (s.at, 0, 0)),
        (count_node, (s.at, 0, 1)),
        (weigh, (s.at, 0, 0, np.zeros((WEIGHED, 1), np.int64))),
        (rehash, (s.work.job_index, s.work.entries, NO_KEYS, 0, False)),
        (look_up, (s.work.job_index, s.work.entries, 0, 0)),
        (rebuild, (s.at, NO_KEYS, NO_KEYS)),
        (retime, (s.at, NO_KEYS, table)),
        (recharge, (s.at,)),
        (renew_offsets, (s.at, 0)),
        (renew_factors, (s.at,)),
        (rebase_shares, (s.at, 0)),
    ):
        if report is not None:
            report(f"compiling {kernel.__module__.rpartition('.')[2]}.{kernel.__name__}")
        bind(kernel, arguments)
    if report is not None:
        report("kernels are compiled")
