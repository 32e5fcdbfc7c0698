"""Check the contract of a Preempt."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from hal.conformance import inputs
from hal.conformance.answers import Asking, info_of
from hal.core.interfaces.preempt import VERSIONS, Preempt


def check_preempt(policy: Preempt, *, seed: int = 0) -> None:
    """Check that prices are numbers of 0 or more, or inf; an attempt's price depends on that attempt and the time
    alone.

    Raises:
        NonConformance: at the first answer that breaks the contract.
    """
    info = info_of(policy, VERSIONS, ("price",))
    chance = np.random.default_rng(seed)
    price = Asking(info.name, "price")
    for case, count in enumerate(inputs.lengths(chance)):
        view, now_ms = inputs.runs(count, chance), inputs.NOW_MS
        price.about(f"case {case} of seed {seed}, {count} attempts")
        whole = price.column(partial(policy.price, view, now_ms), count, "iuf")
        wrong = ~(whole >= 0)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise price.wrong(
                f"returned the price {whole[at]} for the attempt at index {at}; 0 or more is needed, inf: never "
                f"preempted"
            )
        chosen = inputs.some_of(count, chance)
        some = price.column(partial(policy.price, inputs.runs_at(view, chosen), now_ms), chosen.size, "iuf")
        price.same_for_some(_finite(whole), _finite(some), chosen, "the attempt at index")


def _finite(prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace inf by -1, so that prices can be compared by their difference."""
    return np.where(np.isinf(prices), -1.0, prices)
