"""Order: an Order turns waiting jobs into sort keys. Interface version order/2."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import BucketView, ClusterView, JobView, PolicyInfo

INTERFACE: Final = "order/2"


class Order(Protocol):
    """The order within a bucket never changes while jobs wait; ties are broken by job id."""

    info: PolicyInfo

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        """Return shape (J,), smaller first, |key| < 2**60. Called when jobs are submitted or edited, never in a
        cycle."""
        ...

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        """Return shape (B,), added to the keys of each bucket; called once for each new pass."""
        ...
