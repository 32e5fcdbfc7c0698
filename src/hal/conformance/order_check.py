"""Check the contract of an Order."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from hal.conformance import inputs
from hal.conformance.answers import Asking, info_of
from hal.core.interfaces.order import VERSIONS, Order
from hal.core.interfaces.policy import BucketView
from hal.core.kernels.structures.layout import INF


def check_order(policy: Order, *, seed: int = 0) -> None:
    """Check that keys and offsets are whole numbers below 2**60, equal in every call and whichever others are
    passed.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, VERSIONS, ("key", "offset"))
    chance = np.random.default_rng(seed)
    key, offset = Asking(info.name, "key"), Asking(info.name, "offset")
    cluster = inputs.Cluster()
    for case, count in enumerate(inputs.lengths(chance)):
        view = inputs.jobs(count, chance, info.reads_advice)
        key.about(f"case {case} of seed {seed}, {count} jobs")
        keys = key.column(partial(policy.key, view, cluster), count, "iu")
        _check_range(key, keys)
        chosen = inputs.some_of(count, chance)
        part = inputs.jobs_at(view, chosen)
        some = key.column(partial(policy.key, part, cluster), chosen.size, "iu")
        key.same_for_some(keys, some, chosen, "the job at index")
        buckets = inputs.buckets(count, chance, info.reads_advice)
        now_ms = int(chance.integers(0, 1 << 42))
        offset.about(f"case {case} of seed {seed}, {count} buckets at {now_ms} ms")
        _check_offsets(policy, offset, buckets, now_ms, chosen)


def _check_offsets(policy: Order, offset: Asking, buckets: BucketView, now_ms: int, chosen: NDArray[np.int64]) -> None:
    cluster = inputs.Cluster()
    whole = offset.column(lambda: policy.offset(buckets, cluster, now_ms), buckets.class_id.size, "iu")
    _check_range(offset, whole)
    some = inputs.buckets_at(buckets, chosen)
    part = offset.column(lambda: policy.offset(some, cluster, now_ms), chosen.size, "iu")
    offset.same_for_some(whole, part, chosen, "the bucket at index")


def _check_range(asking: Asking, column: NDArray[np.int64]) -> None:
    wrong = [at for at, value in enumerate(column.tolist()) if not -INF < value < INF]
    if wrong:
        raise asking.wrong(
            f"returned {column[wrong[0]]} at index {wrong[0]}; numbers must be between -2**60 and 2**60 (a job without "
            "a limit has a walltime of 2**60 ms: cut it with np.minimum)"
        )
