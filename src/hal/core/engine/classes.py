"""Classes, shapes and owners as values: what the engine interns so that work is per class and bucket, not per job.

Pure values. A **shape** is the per-node request with its constraints; a **class** is a shape and a gang size; a
**bucket** is (class, queue, account, user, QOS). Not the walltime, not the priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from hal.core.model.taint import untolerated


class Match(StrEnum):
    """How a label must relate to the values of a requirement."""

    IN = "in"
    NOT_IN = "not-in"
    EXISTS = "exists"
    ABSENT = "absent"


class Requirement(msgspec.Struct, frozen=True):
    """One condition on a node's labels. NOT_IN also holds for a node without the label, as in Kubernetes."""

    key: str
    match: Match = Match.EXISTS
    values: tuple[str, ...] = ()

    def holds(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels satisfies the condition."""
        if self.match is Match.IN:
            return labels.get(self.key) in self.values
        if self.match is Match.NOT_IN:
            return labels.get(self.key) not in self.values
        return (self.key in labels) is (self.match is Match.EXISTS)


class Term(msgspec.Struct, frozen=True, order=True):
    """Work that has a label, and a level of the topology, or NODE: in its domains one is together with such work, or
    apart from it. label: whose it is and what, as `USER KEY=VALUE`; compared as a whole."""

    label: str
    level: str


NODE = "node"
"""The level of a term whose domains are single nodes."""


class Liking(msgspec.Struct, frozen=True, order=True):
    """A term that adds to the score of nodes near such work as runs: hundredths, negative where it keeps away."""

    term: Term
    weight: int


class Preference(msgspec.Struct, frozen=True):
    """What work would rather have; it never waits for it. spread: a level of the topology, or NODE, over whose domains
    the nodes of its tasks are as evenly as there is room; "" = it does not matter. near: what it would be beside.
    Of queues: placement: by which built-in nodes are scored instead of the site's, "" = by the site's. weights: what a
    unit of advice about a node adds to its score, by kind. scattered: gangs are not placed compactly."""

    spread: str = ""
    near: tuple[Liking, ...] = ()
    placement: str = ""
    weights: tuple[tuple[str, float], ...] = ()
    scattered: bool = False


class ClassSpec(msgspec.Struct, frozen=True):
    """What each attempt of a task takes: `request` on each of `nodes` distinct nodes that satisfy all constraints.

    Amounts are int64 base units, >= 0; a resource that no node has can be named and never fits. nodes >= 1. booking: it
    runs in this booking only (on its nodes, within its time); "" = outside all. licences: amounts of the whole cluster
    that one start takes, whatever its nodes; > 0. within: a level of the topology, in one domain of which all its nodes
    are; "" = anywhere. A node in no domain of the level does not count; of a level that nobody named there is none.
    tolerates: taints of nodes, as `KEY` or `KEY=VALUE`, in spite of which it may run there. movable: while it runs, it
    may be moved elsewhere to make room for a gang. labels: what terms may name of it. apart: its nodes are in no domain
    in which work with such a label runs, nor is such work started in a domain in which this runs. together: each of its
    nodes is in a domain in which work with such a label runs; the first that starts, if it has the label itself, may be
    anywhere. preference: what it would rather have; no part of its shape. groups: classes of the other groups of nodes
    of the same job, in order, whose tasks follow this one's and start with it or not at all, on nodes of their own (see
    `grouped`). follows: it is such a class. group: its name.
    """

    request: dict[str, int]
    nodes: int = 1
    constraints: tuple[Requirement, ...] = ()
    booking: str = ""
    licences: dict[str, int] = {}
    within: str = ""
    tolerates: tuple[str, ...] = ()
    movable: bool = False
    labels: tuple[str, ...] = ()
    apart: tuple[Term, ...] = ()
    together: tuple[Term, ...] = ()
    preference: Preference | None = None
    groups: tuple[ClassSpec, ...] = ()
    follows: bool = False
    group: str = ""

    @property
    def is_social(self) -> bool:
        """Whether where it may start depends on what runs, or may do so."""
        return bool(self.labels or self.apart or self.together)

    def social_key(self) -> tuple[object, ...]:
        """Equal where other work matters alike, and matters to other work alike; () where none does."""
        if not self.is_social:
            return ()
        return ("social", *(frozenset(part) for part in (self.labels, self.apart, self.together)))

    def levels(self) -> set[str]:
        """Levels in some domain of which each of its nodes is to be."""
        levels = {term.level for term in (*self.apart, *self.together)} - {NODE}
        return levels | {self.within} if self.within else levels

    def shape_key(self) -> tuple[object, ...]:
        """Equal for equal feasibility on one node; zero amounts do not count."""
        amounts = tuple(sorted((k, v) for k, v in self.request.items() if v))
        licences = tuple(sorted(self.licences.items()))
        key: tuple[object, ...] = (amounts, frozenset(self.constraints), self.booking, licences, self.within)
        if self.tolerates:
            key = (*key, frozenset(self.tolerates))
        return (*key, self.social_key()) if self.is_social else key

    def holds(self, labels: dict[str, str], taints: dict[str, str]) -> bool:
        """Whether it may use a node with these labels and taints."""
        return all(part.holds(labels) for part in self.constraints) and not (
            taints and untolerated(taints, self.tolerates)
        )


def grouped(parts: Sequence[ClassSpec]) -> tuple[ClassSpec, ...]:
    """The classes of a job's tasks, of which each is a group of nodes: all of them start in one cycle, or none does.

    Args:
        parts: each group by itself, at most MAX_GROUPS.
    """
    made: tuple[ClassSpec, ...] = ()
    for place in range(len(parts) - 1, -1, -1):
        made = (replace(parts[place], groups=made, follows=place > 0), *made)
    return made


class OwnerSpec(msgspec.Struct, frozen=True):
    """Whose work it is; part of the bucket. Replays that need no shares pass one owner for all jobs."""

    queue: str = "default"
    account: str = ""
    user: str = ""
    qos: str = ""
    extension: bool = False
    """Of extensions of jobs: they rank behind all other work, and everybody else may take from them."""


class Elsewhere(msgspec.Struct, frozen=True):
    """A job in another queue that its owner may use: what it would be there. walltime_ms: INF = none."""

    queue: str
    request: ClassSpec
    owner: OwnerSpec
    walltime_ms: int
