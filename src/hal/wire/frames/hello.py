"""Agreeing: the frames that begin and end every conversation.

Values only. Times: see `conversation`.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from hal.core.model import StepId
from hal.core.model.facts import Facts
from hal.wire.bounds import (
    MAX_FEATURES,
    MAX_HELD,
    MAX_LABELS,
    MAX_NOTES,
    MAX_RESOURCES,
    Amount,
    Count,
    LeaseMs,
    Name,
    Note,
    Pid,
    Text,
    Version,
)
from hal.wire.frames.conversation import Frame
from hal.wire.roles import Role


class HeldStep(Struct, frozen=True, array_like=True, gc=False):
    """A step that a keeper holds, as reported at hello."""

    step: StepId
    running: bool
    """False: it waits to be spawned, or its exit is not acknowledged yet."""
    pid: Pid
    """Process id of its first process; 0 if not spawned yet."""
    started_ms: Count
    """When it was spawned; 0 if not yet."""
    allocated_ms: Count = 0
    """`started_at_ms` of its start. It distinguishes two attempts with one id, which can exist after a store was
    restored. 0: unknown."""
    serves: bool = False
    """As in `StepStarted`."""


Capacity = Annotated[dict[Name, Amount], Meta(max_length=MAX_RESOURCES)]
Labels = Annotated[dict[Name, Note], Meta(max_length=MAX_LABELS)]
Notes = Annotated[tuple[Note, ...], Meta(max_length=MAX_NOTES)]
Held = Annotated[tuple[HeldStep, ...], Meta(max_length=MAX_HELD)]


class Hello(Frame, frozen=True, kw_only=True):
    """The first frame from the side that dialled."""

    role: Role
    """The kind of process that dials."""
    versions: tuple[Version, Version]
    """Lowest and highest wire version that it supports."""
    features: Annotated[tuple[Name, ...], Meta(max_length=MAX_FEATURES)] = ()
    """Names of what it supports beyond its wire versions."""
    name: Name = ""
    """The node's name (agent, keeper)."""
    boot_id: Name = ""
    """A new value after each boot of the node: steps of an earlier boot are lost."""
    pid: Pid = 0
    """Process id of the sender."""
    epoch: Count = 0
    """Highest leader epoch it has seen."""
    capacity: Capacity = field(default_factory=dict)
    """What the node offers, by resource name, in base units."""
    labels: Labels = field(default_factory=dict)
    """Labels of the node, for constraints."""
    facts: Facts = Facts()
    """Hardware and system of an agent's node."""
    notes: Notes = ()
    """What this node cannot do, for people (`cpu limits: cgroup not writable`)."""
    held: Held = ()
    """From an agent to the controller: the steps that its keeper holds."""


class Welcome(Frame, frozen=True, kw_only=True):
    """The answer: agreed versions, and times. The fields from `name` on are a keeper's, as in `Hello`."""

    role: Role
    """The kind of process that answers."""
    version: Version
    """The wire version that both sides use from now on."""
    features: Annotated[tuple[Name, ...], Meta(max_length=MAX_FEATURES)] = ()
    """Those that both sides named."""
    epoch: Count = 0
    """From a controller its own; from a keeper the highest that it has seen."""
    heartbeat_ms: LeaseMs = 2_000
    """How often the agent sends `Heartbeat`."""
    lease_ms: LeaseMs = 60_000
    """How long a keeper's lease runs from its stamp."""
    name: Name = ""
    boot_id: Name = ""
    pid: Pid = 0
    capacity: Capacity = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    notes: Notes = ()
    held: Held = ()
    """From a keeper to the agent that dialled it: the steps that it holds."""


STOPPED: Final = "stopped"
"""Code of the goodbye of a node that is stopped in good order."""


class Goodbye(Frame, frozen=True, kw_only=True):
    """The sender closes the connection, and why."""

    code: Name = ""
    """Stable name of an error (`denied`, `version`, `malformed-frame`, `frame-too-long`, `overloaded`), or `removed`
    (the node was removed; its agent dials again only after it is restarted), `stopping` (a keeper that stops together
    with its agent), `quarantined` (the node sent what cannot be true), `not-leader` (another controller leads), or
    empty."""
    reason: Text = ""
    """For people; with `not-leader` the `HOST:PORT` of the controller that leads, or empty if unknown."""
    hint: Text = ""
    """What a person can do about it."""
