"""A configuration as the numbers and plugins that the engine works with; the one place where a state begins.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.policies import (
    AUTO,
    DOMAIN_KERNELS,
    ORDER_KERNELS,
    PLACEMENT_KERNELS,
    PREEMPT_KERNELS,
    domain_score_named,
    filter_named,
    order_named,
    preempt_named,
    score_named,
)
from hal.core.engine.rules.admission import admit_within
from hal.core.engine.rules.licensing import set_totals
from hal.core.engine.rules.owners import owner_ids_in_use, plain_owner
from hal.core.engine.rules.policy_tables import set_policy
from hal.core.engine.rules.preferences import name_levels, weighed_kinds
from hal.core.engine.state import State
from hal.core.engine.tables.qos import MODES, Standings, check_qos
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.declared import LEVELS, SEARCHED_ENTRIES, STANDINGS
from hal.core.model.devices import GPU_PART, GPU_WHOLE
from hal.core.model.policy import Policy, PreemptMode, Qos, Reclaim

BACKFILL_KERNELS: Final = {
    Backfill.NONE: L.BACKFILL_NONE,
    Backfill.EASY: L.BACKFILL_EASY,
    Backfill.EASY_SJBF: L.BACKFILL_SJBF,
    Backfill.TOP_K: L.BACKFILL_CONSERVATIVE,
    Backfill.CONSERVATIVE: L.BACKFILL_CONSERVATIVE,
}


TAKES_EXTENSIONS: Final = 2
"""Of a standing that takes from nobody but extensions of jobs."""


def new_state(
    config: EngineConfig | None = None,
    *,
    on_compile: Callable[[str], None] | None = None,
    kernels: tuple[str, ...] | None = None,
) -> State:
    """An empty state. The first of a process loads the kernels, reporting each to `on_compile` before it does.

    kernels: bind these only, for `compile_all`; such a state cannot plan.
    """
    state = State(config or EngineConfig(), on_compile=on_compile, kernels=kernels)
    use_config(state, state.config)
    state.rewire()
    return state


def _use_levels(state: State, levels: tuple[str, ...]) -> None:
    """Name the topology's levels; nodes keep the domains of those that keep their names."""
    domains = state.domains
    if levels != domains.levels:
        paths = domains.use_levels(levels, len(state.nodes.names))
        state.meta[L.M_LEVELS] = len(levels)
        state.allocation.resize({LEVELS: max(len(levels), 1)}, emptied=True)
        state.make_room_for_domains([path for path in paths if path is not None])
        for node, path in enumerate(paths):
            domains.put(node, path)
        for line in range(int(state.meta[L.M_WITHIN])):
            shape = int(domains.within[line, L.WITHIN_SHAPE]) - 1
            spec = state.catalogue.shape_specs[shape] if shape >= 0 else None
            if spec is not None:
                domains.within[line, L.WITHIN_LEVEL] = domains.level_of(spec.within)
        state.rewire()
        name_levels(state)
        admit_within(state)
        state.settle_domains()
        state.recount(0, int(state.meta[L.M_SHAPES]))
    state.settle_domains()


def policies_of(config: EngineConfig) -> tuple[Order | None, Score | None, Preempt | None, list[Filter]]:
    """The plugins that a configuration names; changes nothing. Raises EngineError for an unknown policy name."""
    return (
        None if config.order in ORDER_KERNELS else order_named(config.order),
        None if config.placement in PLACEMENT_KERNELS else score_named(config.placement),
        None if config.preempt in PREEMPT_KERNELS else preempt_named(config.preempt),
        [filter_named(name) for name in config.filters],
    )


def use_config(state: State, config: EngineConfig) -> None:
    """Set the policy scalars (part of `apply(ConfigChanged)`). Raises EngineError for an unknown policy name."""
    plugins = state.plugins
    plugins.order, plugins.score, plugins.preempt, plugins.filters = policies_of(config)
    plugins.domain_score = None if config.domains in DOMAIN_KERNELS else domain_score_named(config.domains)
    state.scratch.domain_lines.fill(0)  # what a plugin has said holds no longer
    plugins.stopped = frozenset(config.stopped)
    readers = [policy for policy in (plugins.order, plugins.score) if policy is not None]
    plugins.reads_advice = frozenset(kind for policy in readers for kind in policy.info.reads_advice)
    plugins.reads_advice |= weighed_kinds(config.policy)
    state.meta[L.M_PRICED] = int(plugins.preempt is not None)
    state.config = config
    state.meta[L.M_ORDER] = ORDER_KERNELS.get(config.order, L.ORDER_PLUGIN)
    state.meta[L.M_PLACEMENT] = PLACEMENT_KERNELS.get(config.placement, L.PLACE_PLUGIN)
    use_placement(state)
    state.meta[L.M_BACKFILL] = BACKFILL_KERNELS[config.backfill]
    state.meta[L.M_BY_TIME] = int(config.backfill is Backfill.EASY_SJBF)
    state.keeps_timelines = bool(state.meta[L.M_BACKFILL] == L.BACKFILL_CONSERVATIVE)
    state.meta[L.M_TIMELINES] = int(state.keeps_timelines)
    state.renew_timelines()
    state.meta[L.M_PARKING] = int(config.parking)
    state.meta[L.M_CLAIM_AFTER] = config.claim_after_ms
    _use_levels(state, config.levels)
    set_totals(state, None if config.policy is None else config.policy.licences)
    top = config.backfill is Backfill.TOP_K
    state.meta[L.M_MAX_RESERVATIONS] = config.reservations if top else config.max_reservations
    state.note_new_nodes()
    _set_standings(state, config)
    if config.policy is not None or config.order == "priority":
        set_policy(state, config.policy or Policy(), list(owner_ids_in_use(state)))
    elif state.accounts is not None:
        state.accounts = None
        state.shares.queues[:] = 0
        state.meta[L.M_NEXT_EDGE] = L.INF
        for place in (L.M_RENEWS, L.M_SHARED, L.M_SHARES_MOVED):
            state.meta[place] = 0
        for row, owner in owner_ids_in_use(state):
            plain_owner(state, row, owner)


def begin_extensions(state: State) -> None:
    """There are extensions of jobs now: give them a standing, below everybody else's (part of `apply`)."""
    if not state.shares.has_extensions:
        _set_standings(state, state.config)
        state.rewire()


def use_placement(state: State) -> None:
    """Which resources placement looks at, and what `auto` means on these nodes; after nodes or the configuration
    changed (part of `apply`)."""
    resources, meta = state.nodes.resources, state.meta
    for place, name in (
        (L.M_CPU, "cpu"),
        (L.M_GPU, "gpu"),
        (L.M_MEMORY, "memory"),
        (L.M_GPU_WHOLE, GPU_WHOLE),
        (L.M_GPU_PART, GPU_PART),
    ):
        meta[place] = resources.index(name) if name in resources else -1
    if state.config.placement != AUTO:
        return
    gpus = meta[L.M_GPU] >= 0 and bool(state.nodes.capacity[: len(state.nodes.names), meta[L.M_GPU]].any())
    placement = L.PLACE_GPU if gpus else L.PLACE_FIRST
    if placement != meta[L.M_PLACEMENT]:
        meta[L.M_PLACEMENT] = placement
        state.note_new_nodes()


def _set_standings(state: State, config: EngineConfig) -> None:
    """Fill the table of standings, that of extensions of jobs last, if there are any. Raises EngineError as
    `check_qos`."""
    shares = state.shares
    check_qos(config.policy)
    standings = Standings(config.policy or Policy())
    shares.standings = standings
    shares.standing_ids = {standing: row for row, standing in enumerate(standings.all)}
    of_extensions = standings.extensions() if any(owner.extension for owner in shares.owner_ids) else {}
    shares.has_extensions = bool(of_extensions)
    shares.standing_ids |= {standing: len(standings.all) + place for place, standing in enumerate(of_extensions)}
    count = len(shares.standing_ids)
    state.allocation.resize({STANDINGS: count}, emptied=True)
    for row, standing in enumerate(standings.all):
        mode, grace_ms = standings.how(standing)
        shares.qos[row, L.STANDING_MODE] = MODES[mode]
        shares.qos[row, L.STANDING_GRACE] = grace_ms if row else 0
        for place, other in enumerate(standings.all):
            if standings.takes(standing, other) and standings.how(other)[0] is not PreemptMode.OFF:
                shares.qos[row, L.STANDING_TAKES + place] = 1
                shares.qos[row, L.STANDING_PREEMPTS] = 1
    others = len(standings.all)
    for standing, grace_ms in of_extensions.items():
        row = shares.standing_ids[standing]
        shares.qos[row, [L.STANDING_MODE, L.STANDING_GRACE]] = L.MODE_SHRINK, grace_ms
        shares.qos[:others, L.STANDING_TAKES + row] = 1
        alone = shares.qos[:others, L.STANDING_PREEMPTS] == 0
        shares.qos[:others, L.STANDING_PREEMPTS][alone] = TAKES_EXTENSIONS
    limits = config.policy.limits.values() if config.policy is not None else ()
    state.meta[L.M_RECLAIM] = int(any(limit.cohort and limit.reclaim is Reclaim.PREEMPT for limit in limits))
    state.meta[L.M_MOVING] = round(1_000 * config.compaction)
    state.meta[L.M_MOVING_NODES] = config.compaction_nodes
    anybody = bool(state.meta[L.M_RECLAIM] or state.meta[L.M_MOVING])
    if anybody:
        shares.qos[0, L.STANDING_GRACE] = int(Qos().grace)  # work without a QOS may have borrowed, or be moved
    state.meta[L.M_PREEMPTING] = int(shares.qos[:, L.STANDING_PREEMPTS].any() or anybody)
    searched = state.work.entries.shape[0] if state.meta[L.M_PREEMPTING] else 1
    state.allocation.resize({SEARCHED_ENTRIES: searched}, emptied=True)
    state.meta[L.M_SEARCH_EVERY] = config.preempt_every_ms
    state.meta[L.M_MIN_RUN] = config.min_run_ms
    state.meta[L.M_PATIENCE] = config.claim_patience_ms
    state.meta[L.M_MOST_CLAIMS] = config.most_claims
