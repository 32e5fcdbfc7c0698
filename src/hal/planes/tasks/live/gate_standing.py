"""How the gates of active attempts stand, as their nodes reported it, and in words.

Pure. Not stored: nodes report it again to each controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from hal.core.lifecycle import GateState
from hal.core.model.gate import EPILOG, PROLOG, GatePhase
from hal.planes.tasks.live.reported import AttemptKey, Reported

MAX_NAMED: Final = 3
"""Nodes of one gate that are named."""


class GateStanding(NamedTuple):
    """How one gate of one rank stands."""

    gate: str
    phase: GatePhase
    state: GateState
    node: str
    reason: str = ""


_Standings = dict[tuple[int, GatePhase, str], GateStanding]
"""By rank, phase and name of the gate."""


class GateStandings(Reported[_Standings]):
    """Those of all active attempts; bounded by their ranks, with the gates that each may have."""

    def put(self, key: AttemptKey, rank: int, standing: GateStanding) -> bool:
        """Record how a gate of that rank stands; returns whether it stood differently before."""
        at, known = (rank, standing.phase, standing.gate), self._of.get(key, {})
        if known.get(at) == standing:
            return False
        self.set(key, {**known, at: standing})
        return True

    def began(self, key: AttemptKey, rank: int) -> None:
        """Forget what that rank waited for before its processes began."""
        known = self._of.get(key, {})
        left = {at: one for at, one in known.items() if at[0] != rank or at[1] is not GatePhase.PREPARING}
        if len(left) < len(known):
            self.set(key, left)

    def ranks_finalising(self, key: AttemptKey) -> set[int]:
        """The ranks whose processes have ended and that are at a gate."""
        return {rank for rank, phase, _ in self._of.get(key, ()) if phase is GatePhase.FINALISING}

    def waiting(self, key: AttemptKey) -> Iterable[GateStanding]:
        """The gates that are not satisfied, by rank."""
        known = self._of.get(key, {})
        return [known[at] for at in sorted(known) if known[at].state is GateState.WAITING]


def gates_text(standings: Iterable[GateStanding]) -> str:
    """Which gates are not satisfied, on which nodes, and for what they wait."""
    nodes: dict[tuple[GatePhase, str], dict[str, None]] = {}
    reasons: dict[tuple[GatePhase, str], str] = {}
    for one in standings:
        nodes.setdefault((one.phase, one.gate), {})[one.node] = None
        if one.reason:
            reasons.setdefault((one.phase, one.gate), one.reason)
    parts = []
    for (phase, gate), names in nodes.items():
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        reason = f": {reasons[phase, gate]}" if (phase, gate) in reasons else ""
        parts.append(
            _WORDS.get((phase, gate), _words(phase, gate)) + f" {', '.join(islice(names, MAX_NAMED))}{more}{reason}"
        )
    return "; ".join(parts)


_WORDS: Final = {
    (GatePhase.PREPARING, PROLOG): "a prolog runs on",
    (GatePhase.FINALISING, EPILOG): "it has ended; an epilog runs on",
}


def _words(phase: GatePhase, gate: str) -> str:
    if phase is GatePhase.PREPARING:
        return f"gate '{gate}' does not let it begin yet on"
    return f"it has ended; gate '{gate}' is not satisfied yet on"
