"""Policies of other people: distributions that name an object under the entry point group `hal.policies`.

Each is loaded once, before the first engine is made, and registered under its own name; `[engine]` in hal.toml then
chooses by name. What cannot be loaded, or was written for another interface version, stops the start with one error
that names the distribution: a controller never runs with another policy than the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass

from hal.core.engine import EngineError
from hal.core.engine.config import EngineConfig
from hal.core.engine.policies import (
    DOMAIN_KERNELS,
    ORDER_KERNELS,
    PLACEMENT_KERNELS,
    PREEMPT_KERNELS,
    admit_named,
    domain_score_named,
    filter_named,
    order_named,
    preempt_named,
    register,
    score_named,
)
from hal.core.interfaces import PolicyInfo
from hal.core.interfaces.policy import GROUP
from hal.core.model import SpecError

MAX_POLICIES = 1_000


def load_policies() -> tuple[str, ...]:
    """Register every installed policy; their names, in the order of their entry points.

    An entry point names a policy object, or a class that makes one without arguments.

    Raises:
        SpecError: one of them cannot be used; names its entry point and distribution.
    """
    found = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    if len(found) > MAX_POLICIES:
        raise SpecError(f"{len(found)} policies are installed; at most {MAX_POLICIES} are loaded")
    by_name: dict[tuple[str, str], str] = {}
    for entry in found:
        info, of = _loaded(entry)
        other = by_name.setdefault((info.interface.partition("/")[0], info.name), of)
        if other != of:
            raise SpecError(
                f"{of} and {other} are both called '{info.name}'",
                hint="uninstall one: hal.toml could not tell them apart",
            )
    return tuple(name for _, name in by_name)


def check_names(engine: EngineConfig, admit: Sequence[str]) -> None:
    """Whether all policies that `[engine]` names are known, built in or loaded.

    Raises:
        SpecError: one is not; names the setting and those that are.
    """
    try:
        if engine.order not in ORDER_KERNELS:
            order_named(engine.order)
        if engine.placement not in PLACEMENT_KERNELS:
            score_named(engine.placement)
        if engine.domains not in DOMAIN_KERNELS:
            domain_score_named(engine.domains)
        if engine.preempt not in PREEMPT_KERNELS:
            preempt_named(engine.preempt)
        for name in engine.filters:
            filter_named(name)
        for name in admit:
            admit_named(name)
    except EngineError as error:
        raise SpecError(str(error), hint="`pip list` shows which packages are installed") from error


def _loaded(entry: EntryPoint) -> tuple[PolicyInfo, str]:
    """Return what it declares, and how errors name it."""
    of = f"policy '{entry.name}' ({entry.value}{f' of {entry.dist.name} {entry.dist.version}' if entry.dist else ''})"
    hint = "uninstall it, or install a version for this HAL"
    try:
        policy = entry.load()
        if isclass(policy):
            policy = policy()
    except Exception as error:  # other people's code, run for the first time: it may raise anything
        raise SpecError(f"{of} cannot be loaded: {type(error).__name__}: {error}", hint=hint) from error
    if not hasattr(policy, "info"):
        raise SpecError(f"{of} has no `info`", hint="see hal.core.interfaces")
    try:
        register(policy)
    except EngineError as error:
        raise SpecError(f"{of}: {error}", hint=hint) from error
    return policy.info, of
