"""Built-in policies and the register of policies by name.

Pure. Built-in orders and placements are kernels; a plugin is an object that satisfies a Protocol of core/interfaces
and is registered under its name before an engine is configured with it. A shell loads the entry points `hal.policies`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hal.core.engine.errors import EngineError
from hal.core.interfaces import admit as admit_interface
from hal.core.interfaces import domain_score as domain_interface
from hal.core.interfaces import filter as filter_interface
from hal.core.interfaces import order as order_interface
from hal.core.interfaces import preempt as preempt_interface
from hal.core.interfaces import score as score_interface
from hal.core.interfaces.admit import Admit
from hal.core.interfaces.advice import declaration_fault
from hal.core.interfaces.domain_score import DomainScore
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.policy import PolicyInfo
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels.structures.layout import (
    ORDER_FCFS,
    ORDER_PRIORITY,
    ORDER_SJF,
    PLACE_BEST,
    PLACE_DOT,
    PLACE_FGD,
    PLACE_FIRST,
    PLACE_GPU,
    PLACE_SPREAD,
    PLACE_WORST,
)

ORDER_KERNELS: Final = {"fcfs": ORDER_FCFS, "sjf": ORDER_SJF, "priority": ORDER_PRIORITY}
"""priority: the policy's points and disciplines. fcfs: priority, then job id.
sjf: priority, then planned time, then job id."""
AUTO: Final = "auto"
PLACEMENT_KERNELS: Final = {
    AUTO: PLACE_FIRST,
    "first-fit": PLACE_FIRST,
    "best-fit": PLACE_BEST,
    "worst-fit": PLACE_WORST,
    "least-loaded": PLACE_SPREAD,
    "dot-product": PLACE_DOT,
    "gpu-packing": PLACE_GPU,
    "fgd": PLACE_FGD,
}
"""first-fit: lowest row. best-fit: the row left with the least spare of its tightest wanted resource. worst-fit: with
the most. least-loaded: the row of which the largest share is left. dot-product: whose free amounts are most like the
request. gpu-packing, fgd: see `node_scores`. auto: gpu-packing where some node has GPUs, else first-fit."""
SMALLEST: Final = "smallest"
DOMAIN_KERNELS: Final = (SMALLEST,)
"""smallest: the one with the fewest usable nodes that are enough (see `compact_nodes`)."""
LEAST_LOST: Final = "least-lost"
PREEMPT_KERNELS: Final = {LEAST_LOST: 0}
"""least-lost: an attempt costs the time since it started, times what it holds (see `victims.lost`)."""

VERSIONS: Final = {
    "order": order_interface.VERSIONS,
    "score": score_interface.VERSIONS,
    "domain-score": domain_interface.VERSIONS,
    "filter": filter_interface.VERSIONS,
    "preempt": preempt_interface.VERSIONS,
    "admit": admit_interface.VERSIONS,
}
"""By what a policy decides, the versions of its interface that this engine has."""
METHODS: Final = {
    "order": ("key", "offset"),
    "score": ("score",),
    "domain-score": ("score",),
    "filter": ("mask",),
    "preempt": ("price",),
    "admit": ("check",),
}
"""What a policy can do, in every version of its interface."""
_registered: dict[str, dict[str, Any]] = {decides: {} for decides in VERSIONS}


def register(policy: Order | Score | DomainScore | Filter | Preempt | Admit) -> None:
    """Make a plugin known under its name, instead of one that had it.

    Raises:
        EngineError: no PolicyInfo, another interface version, a method that is not there, the name of a built-in, kinds
            of advice that it cannot read.
    """
    info = policy.info
    if not isinstance(info, PolicyInfo):
        raise EngineError(f"a policy's `info` is a PolicyInfo, not {info!r}")
    decides = info.interface.partition("/")[0]
    if info.interface not in VERSIONS.get(decides, ()):
        known = ", ".join(sorted(version for versions in VERSIONS.values() for version in versions))
        raise EngineError(
            f"policy {info.name!r} is written for interface {info.interface!r}; this engine has {known}: install a "
            "version of the plugin for one of these"
        )
    if info.name in (*ORDER_KERNELS, *PLACEMENT_KERNELS, *DOMAIN_KERNELS, *PREEMPT_KERNELS):
        raise EngineError(f"policy {info.name!r} would hide the built-in of that name: give the plugin another name")
    for method in METHODS[decides]:
        if not callable(getattr(policy, method, None)):
            raise EngineError(f"policy {info.name!r} is written for {info.interface!r} and has no {method}()")
    fault = declaration_fault(info)
    if fault:
        raise EngineError(f"policy {info.name!r}: {fault}")
    _registered[decides][info.name] = policy


def order_named(name: str) -> Order:
    """The registered order. Raises EngineError that lists the registered ones."""
    return _named("order", "order", name, ORDER_KERNELS)  # type: ignore[no-any-return]


def score_named(name: str) -> Score:
    """The registered score. Raises EngineError that lists the registered ones."""
    return _named("placement", "score", name, PLACEMENT_KERNELS)  # type: ignore[no-any-return]


def domain_score_named(name: str) -> DomainScore:
    """The registered score of domains. Raises EngineError that lists the registered ones."""
    return _named("domains", "domain-score", name, DOMAIN_KERNELS)  # type: ignore[no-any-return]


def filter_named(name: str) -> Filter:
    """The registered filter. Raises EngineError that lists the registered ones."""
    return _named("filters", "filter", name, ())  # type: ignore[no-any-return]


def preempt_named(name: str) -> Preempt:
    """The registered price of what is taken back. Raises EngineError that lists the registered ones."""
    return _named("preempt", "preempt", name, PREEMPT_KERNELS)  # type: ignore[no-any-return]


def admit_named(name: str) -> Admit:
    """The registered rule for submissions. Raises EngineError that lists the registered ones."""
    return _named("admit", "admit", name, ())  # type: ignore[no-any-return]


def _named(setting: str, decides: str, name: str, built_in: Iterable[str]) -> Any:
    there = _registered[decides]
    if name not in there:
        known = ", ".join(sorted([*built_in, *there])) or "none"
        raise EngineError(
            f"[engine] {setting}: no policy {name!r} for {VERSIONS[decides][-1]}: known are {known}",
            hint="name one of these, or install the plugin that brings it",
        )
    return there[name]
