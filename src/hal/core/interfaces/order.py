"""Order: an Order turns waiting jobs into sort keys. Interface versions order/2 and order/3."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import BucketView, ClusterView, JobView, PolicyInfo

INTERFACE: Final = "order/3"
VERSIONS: Final = ("order/2", INTERFACE)
"""Both have the same methods. order/3 may declare `reads_advice`, and finds these kinds in `advice` of its views."""


class Order(Protocol):
    """The order within a bucket never changes while jobs wait; ties are broken by job id."""

    info: PolicyInfo

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        """Return shape (J,), smaller first, |key| < 2**60. Called when jobs are submitted or edited, or advice about
        them that it reads has changed; never in a cycle."""
        ...

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        """Return shape (B,), added to the keys of each bucket; called once for each new pass."""
        ...
