"""What every plugin declares about itself, and the views that plugins read.

Pure values. The engine checks `interface` when a plugin is registered and refuses another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.labels import Labels

GROUP: Final = "hal.policies"
"""The entry point group under which packages register their policies."""


class PolicyInfo(msgspec.Struct, frozen=True):
    """A plugin's name, the interface version it was written for (for example "order/2"), and what it depends on.

    reads_free: a Score reads `NodeView.free`, so that its scores hold for one slice only.
    reads_advice: kinds of advice that it reads, at most 16; for score/2 and order/3.
    reads_preference: a Score reads `Request.spread` and `near`; for score/2.
    """

    name: str
    interface: str
    reads_free: bool = False
    reads_advice: tuple[str, ...] = ()
    reads_preference: bool = False


Advice: TypeAlias = Mapping[str, NDArray[np.float64]]
"""By kind that the plugin declares: a read-only column as long as the view's others, NaN where nothing is advised.

Each declared kind is there, all NaN while nothing is held of it: advice may be late, wrong or absent at any time.
"""


class JobView(msgspec.Struct, frozen=True):
    """Waiting jobs as read-only columns of equal length J (int64; times in ms, INF = none)."""

    job: NDArray[np.int64]
    priority: NDArray[np.int64]
    submit_ms: NDArray[np.int64]
    eligible_ms: NDArray[np.int64]
    walltime_ms: NDArray[np.int64]
    planned_ms: NDArray[np.int64]
    nodes: NDArray[np.int64]
    class_id: NDArray[np.int64]
    owner_id: NDArray[np.int64]
    advice: Advice = {}
    """Of kinds whose keys are jobs. NaN for kinds with other keys, which a BucketView has."""


class RunView(msgspec.Struct, frozen=True):
    """Running attempts as read-only columns of equal length A (int64; times in ms, INF = never).

    queue, account, user, qos: texts, "" = none. taken: how often its task was preempted or tried before. wasted: what
    would be lost if it were preempted now, in seconds of the whole largest node (float64). nodes: how many nodes it
    runs on, with `amounts[r]` of resource r on each, shape (A,), base units. end_ms: its planned end.
    """

    job: NDArray[np.int64]
    task: NDArray[np.int64]
    attempt: NDArray[np.int64]
    queue: NDArray[np.str_]
    account: NDArray[np.str_]
    user: NDArray[np.str_]
    qos: NDArray[np.str_]
    priority: NDArray[np.int64]
    submit_ms: NDArray[np.int64]
    start_ms: NDArray[np.int64]
    walltime_ms: NDArray[np.int64]
    end_ms: NDArray[np.int64]
    taken: NDArray[np.int64]
    wasted: NDArray[np.float64]
    nodes: NDArray[np.int64]
    resources: tuple[str, ...]
    amounts: NDArray[np.int64]


class BucketView(msgspec.Struct, frozen=True):
    """Buckets with waiting jobs as read-only columns of equal length B: class, owner, number of waiting entries."""

    class_id: NDArray[np.int64]
    owner_id: NDArray[np.int64]
    waiting: NDArray[np.int64]
    advice: Advice = {}
    """Of kinds whose keys are queues, accounts or users: of the bucket's. NaN for kinds with other keys."""


class Owner(Protocol):
    """The owner of work."""

    @property
    def queue(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def qos(self) -> str: ...


class ClusterView(Protocol):
    """What an Order may look up during a call; do not keep it."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Names, by resource index."""
        ...

    def capacity(self) -> NDArray[np.int64]:
        """Shape (R,): the total of the nodes that are up."""
        ...

    def request(self, class_id: int) -> Request:
        """Return what a task of the class uses on each of its nodes."""
        ...

    def owner(self, owner_id: int) -> Owner:
        """Return queue, account, user and QOS of an owner."""
        ...


class NodeView(msgspec.Struct, frozen=True):
    """Nodes as read-only resource-major float32 columns: `free[r]`, `capacity[r]`, each shape (rows,).

    up: True where new work may start. labels: the nodes' labels. A view may contain only some of the nodes.
    """

    rows: int
    resources: tuple[str, ...]
    free: NDArray[np.float32]
    capacity: NDArray[np.float32]
    up: NDArray[np.bool_]
    labels: Labels
    advice: Advice = {}
    """For a Score: of kinds whose keys are nodes. NaN for kinds with other keys."""


class Near(msgspec.Struct, frozen=True):
    """Work that a job would be beside: a label (`KEY=VALUE`) of its user's work, and the level of the topology on which
    it would be in one domain with it, or "node". weight: negative where it would rather be away from it."""

    label: str
    level: str
    weight: float


class Request(msgspec.Struct, frozen=True):
    """What an attempt uses on one node: amounts by resource index, shape (R,), base units.

    For a Score that declares `reads_preference`, what the job prefers: spread: the level over whose domains, "" = none;
    near: other work.
    """

    amounts: NDArray[np.int64]
    wanted: tuple[int, ...]
    spread: str = ""
    near: tuple[Near, ...] = ()
