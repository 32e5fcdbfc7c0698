"""`apply(state, event)`: the only thing that changes the state. An event that cannot be applied changes nothing.

Each kind of event has one function in `changes`. Pure. One kernel call an event; cost is O(log n) a row of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hal.core.engine.changes.advice import renew_keys, update_advice, withdraw_advice
from hal.core.engine.changes.attempts import assume_plan, end_attempts, refuse_starts
from hal.core.engine.changes.jobs import (
    cancel_jobs,
    correct_estimates,
    hold_jobs,
    release_jobs,
    set_eligible_times,
    update_jobs,
    use_predictions,
)
from hal.core.engine.changes.nodes import change_nodes, take_offers
from hal.core.engine.changes.policy import advance_clock, change_bookings, change_config, load_shares, wake_everything
from hal.core.engine.changes.submissions import adopt_allocations, submit_jobs
from hal.core.engine.events import (
    AdviceUpdated,
    AdviceWithdrawn,
    AllocationsAdopted,
    AttemptsEnded,
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    EstimatesCorrected,
    Event,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    KeysRenewed,
    NodesChanged,
    NodesOffered,
    PlanAssumed,
    RuntimesPredicted,
    SharesLoaded,
    StartsRefused,
    WholePassDue,
)
from hal.core.engine.rules.affinity import part_nodes
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L


def apply(state: State, event: Event) -> None:
    """Change the state by one event.

    Raises EngineError, and changes nothing, when the event contradicts the state; EngineFault when the state
    contradicts itself.
    """
    _APPLY[type(event)](state, event)
    if state.meta[L.M_PARTED]:
        part_nodes(state)
    if state.path[L.FAULT]:
        state.check_bounds()


_APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    JobsSubmitted: submit_jobs,
    AttemptsEnded: end_attempts,
    PlanAssumed: assume_plan,
    StartsRefused: refuse_starts,
    AllocationsAdopted: adopt_allocations,
    JobsEligible: set_eligible_times,
    JobsHeld: hold_jobs,
    JobsReleased: release_jobs,
    JobsCancelled: cancel_jobs,
    JobsUpdated: update_jobs,
    RuntimesPredicted: use_predictions,
    AdviceUpdated: update_advice,
    AdviceWithdrawn: withdraw_advice,
    KeysRenewed: renew_keys,
    EstimatesCorrected: correct_estimates,
    ClockAdvanced: advance_clock,
    WholePassDue: wake_everything,
    BookingsChanged: change_bookings,
    ConfigChanged: change_config,
    SharesLoaded: load_shares,
    NodesChanged: change_nodes,
    NodesOffered: take_offers,
}
