"""Policies that a replay can name, built in or of an installed package; and how the engine decides under one.

Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.policies import (
    AUTO,
    PLACEMENT_KERNELS,
    SMALLEST,
    domain_score_named,
    filter_named,
    order_named,
    score_named,
)
from hal.daemons.twin.machine import POLICIES, reservations_of
from hal.daemons.twin.replay import config_of

COMPACT: Final = "compact"
"""On as few domains as hold a job, as a site with a topology has it."""
FIRST_FIT: Final = "first-fit"
"""By the order of nodes, or the policy's scores, as without a topology."""
PLACEMENTS: Final = (COMPACT, FIRST_FIT)
_COMPACT_AND: Final = f"{COMPACT}+"


class NamedPolicy(NamedTuple):
    """A policy by the name that was typed."""

    name: str
    engine: EngineConfig


def built_in(name: str) -> NamedPolicy | None:
    """The policy of that name; None where there is none."""
    return NamedPolicy(name, config_of(name)) if name in POLICIES or reservations_of(name) is not None else None


def registered(name: str) -> NamedPolicy | None:
    """The engine with the registered Order, Score, DomainScore or Filter of that name in place of the one of its kind:
    else first come, first served, with EASY backfill. None: none is called so."""
    for named, engine in (
        (order_named, EngineConfig(order=name)),
        (score_named, EngineConfig(placement=name)),
        (domain_score_named, EngineConfig(domains=name)),
        (filter_named, EngineConfig(filters=(name,))),
    ):
        try:
            named(name)
        except EngineError:
            continue
        return NamedPolicy(name, engine)
    return None


def described(engine: EngineConfig) -> str:
    """How the engine decides, in the words of section [engine]: an order is two policies with two kinds of backfill."""
    words = [f"order {engine.order}", f"backfill {engine.backfill}"]
    if engine.backfill is Backfill.TOP_K:
        words[-1] += f" ({engine.reservations} reservations)"
    if engine.placement not in ("auto", "first-fit"):
        words.append(f"placement {engine.placement}")
    if engine.levels:
        words.append("compact" if engine.compact else "not compact")
    if engine.domains != SMALLEST:
        words.append(f"domains {engine.domains}")
    if engine.filters:
        words.append(f"filters {' '.join(engine.filters)}")
    return ", ".join(words)


def is_placement(name: str) -> bool:
    """Whether nodes can be chosen so: `compact`, `first-fit`, a placement of the engine, `compact+best-fit`."""
    if name in PLACEMENTS:
        return True
    score = name.removeprefix(_COMPACT_AND)
    try:
        return score in PLACEMENT_KERNELS or bool(score_named(score))
    except EngineError:
        return False


def placed(engine: EngineConfig, placement: str) -> EngineConfig:
    """The same, with its nodes chosen as `is_placement` names it."""
    compact = placement == COMPACT or placement.startswith(_COMPACT_AND)
    if placement == COMPACT or (placement == FIRST_FIT and engine.placement != AUTO):
        return replace(engine, compact=compact)
    return replace(engine, compact=compact, placement=placement.removeprefix(_COMPACT_AND))
