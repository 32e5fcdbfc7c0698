"""A policy's queues, ledgers and shares by name, and which number each has in the tables.

Pure values and names; `owners` makes the rows, `policy_tables` all of them at once.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.engine.classes import OwnerSpec
from hal.core.engine.tables.nodes import Nodes
from hal.core.engine.tables.qos import Standing, Standings
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.declared import ShareTables
from hal.core.model.devices import is_counted_beside
from hal.core.model.policy import Policy
from hal.core.model.policy_hours import ZoneOffsets

GIB: Final = 1 << 30


class LedgerName(Struct, frozen=True, order=True):
    """What a ledger counts: a limit (or cohort), the names that its '*' stand for, and an amount.

    what: "running", "resources" or "hours". cohort: the limits of a cohort taken together.
    """

    limit: str
    queue: str = ""
    account: str = ""
    user: str = ""
    qos: str = ""
    what: str = "running"
    resource: str = ""
    cohort: str = ""


class Spent(Struct, frozen=True):
    """Of an hours ledger, in base-unit-seconds: charged (what runs for its whole walltime), used by what has ended."""

    used: int
    ended: int
    ends_ms: int


class Shares(ShareTables):
    """The part of a `State` that holds owners, queues, limits and shares; names of a policy are in `Accounts`."""

    def __init__(self, no_ids: Ints) -> None:
        self.owner_ids: dict[OwnerSpec, int] = {}
        """Owner id of every owner that is interned."""
        self.owner_specs: list[OwnerSpec] = []
        """By owner id; where the id is free, the last one that had it."""
        self.owner_free: list[int] = []
        """Owner ids to be used again."""
        self.seen: tuple[OwnerSpec, ...] | None = None
        """The owners of the last event, by identity: most events name the same tuple."""
        self.seen_ids: Ints = no_ids
        """Their ids."""
        self.standings = Standings(Policy())
        """Who may preempt whom."""
        self.standing_ids: dict[Standing, int] = {}
        """Row of each standing in the table `qos`."""
        self.has_extensions = False
        """Standings of extensions of jobs are among them."""


class Accounts:
    """Names of a policy, and the rows that have them. Replaced as a whole by a change of policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.queue_ids: dict[str, int] = {}
        """Row in `queues`; queues that the policy does not know have one, too."""
        self.ledger_ids: dict[LedgerName, int] = {}
        """Row in `ledgers`."""
        self.ledger_names: list[LedgerName] = []
        """By row in `ledgers`."""
        self.node_ids: dict[tuple[str, ...], int] = {(): 0}
        """Node of the tree of shares, by the accounts above it; a user's name begins with a NUL."""
        self.node_paths: list[tuple[str, ...]] = [()]
        """By node of the tree of shares."""
        self.turn_ids: dict[tuple[str, str], int] = {}
        """By queue and user: the owner whose O_TURN counts."""
        self.hours: list[tuple[int, tuple[str, ...], ZoneOffsets]] = []
        """Queues that have hours: row, hours, and the zone of these."""
        self.hour_ledgers: dict[LedgerName, int] = {}
        """Those of `ledger_ids` that count hours."""
        self.idle: dict[LedgerName, Spent] = {}
        """What was used of hours ledgers that have no row: nobody of them has work."""

    def set_charge(self, nodes: Nodes, shares: Shares, meta: Ints) -> None:
        """What a base unit of each resource costs a second; after resources or nodes changed."""
        fair = self.policy.fairshare
        shares.charge[:] = 0.0
        for index, name in enumerate(nodes.resources):
            unit = {"cpu": 1000.0, "gpu": 1000.0, "memory": float(GIB)}.get(name, 1.0)
            price = fair.charge.get(name, 0.0) / unit
            if fair.dominant:
                total = float(nodes.capacity[: len(nodes.names), index].sum())
                price = (fair.charge.get(name, 1.0) / total) if total else 0.0
            shares.charge[0, index] = 0.0 if is_counted_beside(name) else price  # its resource is charged
        shares.charge[1, 0] = float(fair.dominant)
        meta[L.M_CPU] = nodes.resources.index("cpu") if "cpu" in nodes.resources else -1
