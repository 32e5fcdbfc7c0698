"""How the gates of active attempts stand, as their nodes reported it, and in words.

Pure. Not stored: nodes report it again to each controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from hal.core.lifecycle import GateState
from hal.core.model.gate import EPILOG, PROLOG, GatePhase

MAX_NAMED: Final = 3
"""Nodes of one gate that are named."""
AttemptKey = tuple[int, int, int]
"""Job, task, attempt number."""


class GateStanding(NamedTuple):
    """How one gate of one rank stands."""

    gate: str
    phase: GatePhase
    state: GateState
    node: str
    reason: str = ""


_Standings = dict[tuple[int, GatePhase, str], GateStanding]
"""By rank, phase and name of the gate."""


class GateStandings:
    """Those of all active attempts; bounded by their ranks, with the gates that each may have."""

    def __init__(self) -> None:
        self._of: dict[AttemptKey, _Standings] = {}
        self._before: dict[AttemptKey, _Standings | None] = {}
        """Of attempts that have changed since the last `keep`: as they were; None: nothing was known."""

    def put(self, key: AttemptKey, rank: int, standing: GateStanding) -> bool:
        """Record how a gate of that rank stands; returns whether it stood differently before."""
        at = (rank, standing.phase, standing.gate)
        if self._of.get(key, {}).get(at) == standing:
            return False
        self._remember(key)
        self._of.setdefault(key, {})[at] = standing
        return True

    def began(self, key: AttemptKey, rank: int) -> None:
        """Forget what that rank waited for before its processes began."""
        over = [at for at in self._of.get(key, ()) if at[0] == rank and at[1] is GatePhase.PREPARING]
        if over:
            self._remember(key)
            for at in over:
                del self._of[key][at]

    def ranks_finalising(self, key: AttemptKey) -> set[int]:
        """The ranks whose processes have ended and that are at a gate."""
        return {rank for rank, phase, _ in self._of.get(key, ()) if phase is GatePhase.FINALISING}

    def waiting(self, key: AttemptKey) -> Iterable[GateStanding]:
        """The gates that are not satisfied, by rank."""
        known = self._of.get(key, {})
        return [known[at] for at in sorted(known) if known[at].state is GateState.WAITING]

    def drop(self, key: AttemptKey) -> None:
        """Forget an attempt."""
        if key in self._of:
            self._remember(key)
            del self._of[key]

    def keep(self) -> None:
        """What was staged is committed."""
        self._before.clear()

    def undo(self) -> None:
        """Return to the last `keep`: what was reported since is reported again."""
        for key, before in self._before.items():
            if before is None:
                self._of.pop(key, None)
            else:
                self._of[key] = before
        self._before.clear()

    def _remember(self, key: AttemptKey) -> None:
        if key not in self._before:
            known = self._of.get(key)
            self._before[key] = None if known is None else dict(known)

    def __len__(self) -> int:
        return len(self._of)


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
