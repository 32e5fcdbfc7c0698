"""The life of a node.

Pure data. The rules:

1. New steps start only on a node that is up. A cordoned node keeps its steps; a draining one is emptied, and becomes
cordoned when the last step has ended.
2. A silent node is unreachable: its steps stay (on_node_lost: wait) and nothing new starts there. It returns to its
former state (RETURN, RETURN_CORDONED, RETURN_DRAINING: the caller remembers which of them applies). A node whose agent
said that it stops is stopped: the same, but that nothing is wrong with it.
3. Down: it said goodbye, or a person or a provider declared it gone; its attempts have ended as lost. It may return.
4. Removed is an end; a node of that name that connects again is a new node.
"""

from __future__ import annotations

from enum import StrEnum

from hal.core.lifecycle.automaton import Automaton
from hal.core.model import NodeState


class NodeEvent(StrEnum):
    """What happens to a node."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    DRAINED = "drained"
    SILENT = "silent"
    STOP = "stop"
    RETURN = "return"
    RETURN_CORDONED = "return-cordoned"
    RETURN_DRAINING = "return-draining"
    LEAVE = "leave"
    FENCE = "fence"
    REMOVE = "remove"


_S = NodeState
_E = NodeEvent

NODE: Automaton[NodeState, NodeEvent] = Automaton(
    "node",
    initial=frozenset({_S.UP}),
    table={
        _S.UP: {
            _E.CORDON: _S.CORDONED,
            _E.DRAIN: _S.DRAINING,
            _E.SILENT: _S.UNREACHABLE,
            _E.STOP: _S.STOPPED,
            _E.LEAVE: _S.DOWN,
            _E.FENCE: _S.DOWN,
        },
        _S.CORDONED: {
            _E.UNCORDON: _S.UP,
            _E.DRAIN: _S.DRAINING,
            _E.SILENT: _S.UNREACHABLE,
            _E.STOP: _S.STOPPED,
            _E.LEAVE: _S.DOWN,
            _E.FENCE: _S.DOWN,
        },
        _S.DRAINING: {
            _E.UNCORDON: _S.UP,
            _E.DRAINED: _S.CORDONED,
            _E.SILENT: _S.UNREACHABLE,
            _E.STOP: _S.STOPPED,
            _E.LEAVE: _S.DOWN,
            _E.FENCE: _S.DOWN,
        },
        _S.UNREACHABLE: {
            _E.RETURN: _S.UP,
            _E.RETURN_CORDONED: _S.CORDONED,
            _E.RETURN_DRAINING: _S.DRAINING,
            _E.FENCE: _S.DOWN,
        },
        _S.STOPPED: {
            _E.RETURN: _S.UP,
            _E.RETURN_CORDONED: _S.CORDONED,
            _E.RETURN_DRAINING: _S.DRAINING,
            _E.FENCE: _S.DOWN,
        },
        _S.DOWN: {
            _E.RETURN: _S.UP,
            _E.RETURN_CORDONED: _S.CORDONED,
            _E.REMOVE: _S.REMOVED,
        },
    },
)
