"""Built-in policies and the register of policies by name.

Pure. Built-in orders and placements are kernels; a plugin is an object that satisfies a Protocol of core/interfaces
and is registered under its name before an engine is configured with it. A shell loads the entry points `hal.policies`.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.engine.errors import EngineError
from hal.core.interfaces import admit as admit_interface
from hal.core.interfaces import filter as filter_interface
from hal.core.interfaces import order as order_interface
from hal.core.interfaces import preempt as preempt_interface
from hal.core.interfaces import score as score_interface
from hal.core.interfaces.admit import Admit
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.policy import PolicyInfo
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels.structures.layout import ORDER_FCFS, ORDER_PRIORITY, ORDER_SJF, PLACE_BEST, PLACE_FIRST

ORDER_KERNELS: Final = {"fcfs": ORDER_FCFS, "sjf": ORDER_SJF, "priority": ORDER_PRIORITY}
"""priority: the policy's points and disciplines. fcfs: priority, then job id.
sjf: priority, then planned time, then job id."""
PLACEMENT_KERNELS: Final = {"first-fit": PLACE_FIRST, "best-fit": PLACE_BEST}
"""first-fit: lowest row. best-fit: the row left with the least spare of its tightest wanted resource."""
LEAST_LOST: Final = "least-lost"
PREEMPT_KERNELS: Final = {LEAST_LOST: 0}
"""least-lost: an attempt costs the time since it started, times what it holds (see `victims.lost`)."""

_registered: dict[str, dict[str, Any]] = {
    order_interface.INTERFACE: {},
    score_interface.INTERFACE: {},
    filter_interface.INTERFACE: {},
    preempt_interface.INTERFACE: {},
    admit_interface.INTERFACE: {},
}

METHODS: Final = {
    order_interface.INTERFACE: ("key", "offset"),
    score_interface.INTERFACE: ("score",),
    filter_interface.INTERFACE: ("mask",),
    preempt_interface.INTERFACE: ("price",),
    admit_interface.INTERFACE: ("check",),
}
"""What a policy of each interface can do."""


def register(policy: Order | Score | Filter | Preempt | Admit) -> None:
    """Make a plugin known under its name, instead of one that had it.

    Raises:
        EngineError: no PolicyInfo, another interface version, a method that is not there, the name of a built-in.
    """
    info = policy.info
    if not isinstance(info, PolicyInfo):
        raise EngineError(f"a policy's `info` is a PolicyInfo, not {info!r}")
    if info.interface not in _registered:
        raise EngineError(
            f"policy {info.name!r} is written for interface {info.interface!r}; this engine has "
            f"{', '.join(sorted(_registered))}: install a version of the plugin for one of these"
        )
    if info.name in (*ORDER_KERNELS, *PLACEMENT_KERNELS, *PREEMPT_KERNELS):
        raise EngineError(f"policy {info.name!r} would hide the built-in of that name: give the plugin another name")
    for method in METHODS[info.interface]:
        if not callable(getattr(policy, method, None)):
            raise EngineError(f"policy {info.name!r} is written for {info.interface!r} and has no {method}()")
    _registered[info.interface][info.name] = policy


def order_named(name: str) -> Order:
    """The registered order. Raises EngineError that lists the registered ones."""
    return _named("order", order_interface.INTERFACE, name, ORDER_KERNELS)  # type: ignore[no-any-return]


def score_named(name: str) -> Score:
    """The registered score. Raises EngineError that lists the registered ones."""
    return _named("placement", score_interface.INTERFACE, name, PLACEMENT_KERNELS)  # type: ignore[no-any-return]


def filter_named(name: str) -> Filter:
    """The registered filter. Raises EngineError that lists the registered ones."""
    return _named("filters", filter_interface.INTERFACE, name, {})  # type: ignore[no-any-return]


def preempt_named(name: str) -> Preempt:
    """The registered price of what is taken back. Raises EngineError that lists the registered ones."""
    return _named("preempt", preempt_interface.INTERFACE, name, PREEMPT_KERNELS)  # type: ignore[no-any-return]


def admit_named(name: str) -> Admit:
    """The registered rule for submissions. Raises EngineError that lists the registered ones."""
    return _named("admit", admit_interface.INTERFACE, name, {})  # type: ignore[no-any-return]


def _named(setting: str, interface: str, name: str, built_in: dict[str, int]) -> Any:
    there = _registered[interface]
    if name not in there:
        known = ", ".join(sorted([*built_in, *there])) or "none"
        raise EngineError(
            f"[engine] {setting}: no policy {name!r} for {interface}: known are {known}",
            hint="name one of these, or install the plugin that brings it",
        )
    return there[name]
