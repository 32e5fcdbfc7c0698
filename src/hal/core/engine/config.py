"""The engine's configuration: which policies, how much work a slice may do, which bounds hold.

Pure values; part of the recorded events (`ConfigChanged`), so the same configuration and events give the same plans.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hal.core.model.policy import Policy
from hal.core.model.policy_hours import ZoneOffsets


class Backfill(StrEnum):
    """What may overtake a job that waits for resources.

    NONE: nothing that competes for the same rows (strict order).
    EASY: whatever does not delay the first waiting job of each set of competing rows; candidates in order.
    EASY_SJBF: the same, candidates by planned time, ties by submit order.
    TOP_K: whatever delays none of the first `reservations` waiting jobs of each set of competing rows.
    CONSERVATIVE: whatever delays no job ahead of it; every waiting job keeps its reservation or gets an earlier one.
    """

    NONE = "none"
    EASY = "easy"
    EASY_SJBF = "easy-sjbf"
    TOP_K = "top-k"
    CONSERVATIVE = "conservative"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Policies by registered name, and bounds. All bounds are work or counts, never time.

    policy: queues, shares, limits; None: every queue is alike and nothing is limited.
    zones: of the hours of the policy's queues, by name; a zone that is not among them is taken for UTC.
    order: "priority" (the policy's points and disciplines), or a registered Order ("fcfs", "sjf").
    placement: "auto", "first-fit", "best-fit", "worst-fit", "least-loaded", "dot-product", "gpu-packing", "fgd" or
        a registered Score.
    domains: which domain of the topology a gang is placed in, of those that hold it: "smallest" or a registered
        DomainScore.
    preempt: whose running work is taken back first: "least-lost" or a registered Preempt.
    filters: registered Filters, all of which must admit a row.
    stopped: of the filters, those that failed: they keep what they said last and admit nothing else.
    parking: False looks at every bucket in every pass; starts the same jobs (a tested property), only slower.
    slice_work: row checks and candidates that one cycle may spend before it hands back a cursor.
    slice_starts: starts that one cycle may plan. fast_starts: starts of a fast-lane slice of the Scheduler.
    claim_after_ms: how long the first waiting job may wait for a release that is 'never' before it claims rows.
    reservations: waiting jobs of each set of competing rows that hold a reservation under TOP_K, at least 1.
    max_reservations: the same under CONSERVATIVE; the ones behind wait without.
    preempt_every_ms: between two searches for the same waiting job, when something has changed.
    min_run_ms: a task that was taken back once runs this long before it may be again; doubles each further time.
    claim_patience_ms: how long after its time an attempt that was told to end may go on before the claim on its rows
        falls.
    most_claims: waiting tasks for which work is being taken back, at once.
    compaction: running work that may be moved is moved for the first waiting gang when that gains it so many times what
        the work loses; 0 = never. compaction_nodes: of gangs with so many nodes at least.
    gpu_parts: several jobs may share a GPU of a node that binds them. Read by who feeds nodes and classes, not here.
    gpu_islands: jobs may ask for GPUs of one link island. Read likewise.
    gpu_reserve: of cores and memory what work without GPUs must leave of a node for each of its GPUs, base units; {} =
        nothing. Read by who feeds nodes and classes, too.
    levels: names of the topology's levels, widest first; () = no topology. Nodes say their domains in this order.
    compact: gangs that ask for no domain are placed in the smallest that holds them, and on few of the narrowest ones;
        False places them as without a topology.
    """

    order: str = "fcfs"
    placement: str = "first-fit"
    backfill: Backfill = Backfill.EASY
    preempt: str = "least-lost"
    domains: str = "smallest"
    filters: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    parking: bool = True
    slice_work: int = 1 << 40
    slice_starts: int = 10_000
    fast_starts: int = 1_000
    fast_work: int = 1_000_000
    claim_after_ms: int = 600_000
    reservations: int = 10
    max_reservations: int = 1 << 20
    policy: Policy | None = None
    zones: dict[str, ZoneOffsets] = {}
    preempt_every_ms: int = 1_000
    min_run_ms: int = 60_000
    claim_patience_ms: int = 60_000
    most_claims: int = 1_000
    compaction: float = 0.0
    compaction_nodes: int = 8
    gpu_parts: bool = False
    gpu_islands: bool = False
    gpu_reserve: dict[str, int] = {}
    levels: tuple[str, ...] = ()
    compact: bool = True
