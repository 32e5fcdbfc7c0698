"""What every plugin says about itself, and the views that plugins read.

Pure values. The engine checks `interface` when a plugin is registered and refuses another version.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

GROUP: Final = "hal.policies"
"""The entry point group by which packages name their policies."""


class PolicyInfo(msgspec.Struct, frozen=True):
    """A plugin's name, the interface version it was written for (for example "order/1"), and what it depends on.

    reads_free: a Score reads `NodeView.free`, so that its scores hold for one slice only.
    """

    name: str
    interface: str
    reads_free: bool = False


class JobView(msgspec.Struct, frozen=True):
    """Waiting jobs as read-only columns of equal length J (int64; times in ms, INF = none)."""

    job: NDArray[np.int64]
    priority: NDArray[np.int64]
    submit_ms: NDArray[np.int64]
    eligible_ms: NDArray[np.int64]
    walltime_ms: NDArray[np.int64]
    planned_ms: NDArray[np.int64]
    nodes: NDArray[np.int64]


class NodeView(msgspec.Struct, frozen=True):
    """Rows as read-only resource-major float32 columns: `free[r]`, `capacity[r]`, each shape (rows,)."""

    rows: int
    resources: tuple[str, ...]
    free: NDArray[np.float32]
    capacity: NDArray[np.float32]


class Request(msgspec.Struct, frozen=True):
    """What an attempt takes on one row: amounts by resource index, shape (R,), base units."""

    amounts: NDArray[np.int64]
    wanted: tuple[int, ...]
