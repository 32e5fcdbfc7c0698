"""The orders for nodes after a commit.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from hal.core.model import StepId
from hal.core.model.grace import DEFAULT_GRACE_MS
from hal.wire.frames.agent_keeper import StepStart, StepTemplate, StopReason


class Eviction(Struct, frozen=True):
    """How steps are asked to leave: by `signal`, to save their work within `grace_ms`, and then by SIGTERM, to end
    within `last_grace_ms`; or, without a signal, by SIGTERM, to end within `grace_ms`."""

    signal: str = ""
    grace_ms: int = DEFAULT_GRACE_MS
    last_grace_ms: int = 0


OF_EXTENSIONS: Final = 1 << 60
"""Added to a job's id: the key of the template of its extensions; more than any id."""

OF_GROUPS: Final = 1 << 50
"""Added to a job's id as often as says which group it is, from 1: the key of the template of that group's steps; more
than any id."""


class NodesNow(Struct, frozen=True):
    """The nodes that an elastic job has, for the step that leads its base."""

    nodes: tuple[str, ...]
    slots: int
    """Ranks of each."""
    signal: str


@dataclass(slots=True)
class Orders:
    """What one node is sent after the commit, in this order."""

    templates: dict[int, StepTemplate] = field(default_factory=dict)
    """By job; by its negative id what its steps have in common on nodes where its command does not run, by its id and
    `OF_EXTENSIONS` what its extensions have, and `OF_GROUPS` those on the nodes of a group."""
    starts: list[StepStart] = field(default_factory=list)
    """`template` holds that key; whoever frames them puts the position there."""
    lost: list[StepId] = field(default_factory=list)
    """Given away without a word of the node: no start of one may leave any more, and what began is ended."""
    stops: dict[StopReason, list[StepId]] = field(default_factory=dict)
    recalls: list[StepId] = field(default_factory=list)
    """Starts on credit that are asked back."""
    evictions: dict[Eviction, list[StepId]] = field(default_factory=dict)
    """Steps that leave for other work, by how."""
    suspends: list[StepId] = field(default_factory=list)
    resumes: list[StepId] = field(default_factory=list)
    resized: dict[StepId, NodesNow] = field(default_factory=dict)
    """What leads the base of an elastic job is told its nodes."""
    walltimes: dict[int, list[StepId]] = field(default_factory=dict)
    """Running steps by their new walltime."""
    arrival: object = None
    """The arrival that this group recorded, if any: what earlier groups start there is started again by this one
    where it still holds, and nothing else may be."""
    acks: list[StepId] = field(default_factory=list)
    """Exits that are durable."""
