"""Select the check that a policy needs, by its interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hal.conformance.admit_check import check_admit
from hal.conformance.answers import NonConformance
from hal.conformance.order_check import check_order
from hal.conformance.placement_checks import check_domain_score, check_filter, check_score
from hal.conformance.preempt_check import check_preempt
from hal.core.interfaces import admit, domain_score, order, preempt, score
from hal.core.interfaces import filter as filter_interface
from hal.core.interfaces.policy import PolicyInfo

_CHECKS: Final[dict[str, Callable[..., None]]] = {
    version: checked
    for versions, checked in (
        (order.VERSIONS, check_order),
        (score.VERSIONS, check_score),
        (domain_score.VERSIONS, check_domain_score),
        (filter_interface.VERSIONS, check_filter),
        (preempt.VERSIONS, check_preempt),
        (admit.VERSIONS, check_admit),
    )
    for version in versions
}
INTERFACES: Final = tuple(_CHECKS)
"""Interface versions of this HAL."""


def check(policy: Any, *, seed: int = 0) -> None:
    """Check a policy against the interface that it declares.

    Raises:
        NonConformance: it breaks the contract, or this HAL has no such interface.
    """
    info = getattr(policy, "info", None)
    if not isinstance(info, PolicyInfo):
        raise NonConformance(f"{policy!r}: its `info` must be a PolicyInfo, and is {info!r}")
    found = _CHECKS.get(info.interface)
    if found is None:
        raise NonConformance(
            f"policy '{info.name}' is written for {info.interface!r}; this HAL has {', '.join(INTERFACES)}"
        )
    found(policy, seed=seed)
