"""A waiting job's priority in points, factor by factor: what `hal show --priority` prints.

Pure. Computed from the same columns as the keys, so that the sum is the key's value in points.
"""

from __future__ import annotations

import msgspec
import numpy as np

from hal.core.engine.errors import EngineError
from hal.core.engine.rules.policy_tables import fair_factor
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.model.policy import Discipline


class PriorityParts(msgspec.Struct, frozen=True, kw_only=True):
    """Points of each factor and their sum; higher goes first.

    fair_factor: 0..1, what the account and user have left of their share. discipline: how the job's queue orders its
    own jobs; where it is not `priority`, the parts that do not count there are 0.
    """

    job: int
    discipline: str
    total: float
    age: float = 0.0
    fairshare: float = 0.0
    fair_factor: float = 1.0
    qos: float = 0.0
    queue: float = 0.0
    priority: float = 0.0
    size: float = 0.0
    deadline: float = 0.0


def priority_of(state: State, job: int, now_ms: int) -> PriorityParts:
    """The parts for the job's first waiting tasks. Raises EngineError when nothing of it waits."""
    top = int(state.meta[L.M_ENTRY_TOP])
    slots = np.flatnonzero(
        (state.work.entries[:top, L.E_WHERE] != L.WHERE_FREE) & (state.work.entries[:top, L.E_JOB] == job)
    )
    if not slots.shape[0]:
        raise EngineError(f"job {job} does not wait in the engine: only waiting jobs have a priority")
    entry = state.work.entries[int(slots[np.argmin(state.work.entries[slots, L.E_FIRST])])]
    if state.accounts is None or state.meta[L.M_ORDER] != L.ORDER_PRIORITY:
        points = float(entry[L.E_PRIORITY])
        return PriorityParts(job=job, discipline=state.config.order, total=points, priority=points)
    bucket = int(entry[L.E_BUCKET])
    owner = int(state.work.buckets[bucket, L.B_OWNER])
    spec = state.shares.owner_specs[owner]
    policy = state.accounts.policy
    row = state.shares.queues[int(state.shares.owners[owner, L.O_QUEUE])]
    queue = policy.queues.get(spec.queue)
    weights = policy.weights if queue is None or queue.weights is None else queue.weights
    order = queue.order if queue is not None else Discipline.PRIORITY
    qos = policy.qos.get(spec.qos)
    of_qos = weights.qos * (qos.priority if qos is not None else 0)
    of_queue = weights.queue * (queue.priority if queue is not None else 0)
    factor = fair_factor(state, int(state.shares.owners[owner, L.O_LEAF]))
    since = int(max(entry[L.E_SUBMIT], entry[L.E_ELIGIBLE])) if entry[L.E_ELIGIBLE] < L.INF else int(entry[L.E_SUBMIT])
    if order in (Discipline.FIFO, Discipline.ROUND_ROBIN):
        since = int(entry[L.E_SUBMIT])
    key = int(entry[L.E_KEY]) - (L.EXTENSION_BAND if state.shares.owner_specs[owner].extension else 0)
    age = float(row[L.Y_SLOPE]) * (now_ms - since) / L.POINT
    nice = size = due = fair = 0.0
    if order is Discipline.PRIORITY:
        fair = weights.fairshare * factor
        nice = weights.priority * int(entry[L.E_PRIORITY])
        due = -(key - int(row[L.Y_SLOPE]) * since + int(row[L.Y_NICE]) * int(entry[L.E_PRIORITY]))
        due /= L.POINT
        cpu = int(state.meta[L.M_CPU])
        class_row = state.catalogue.classes[int(state.work.buckets[bucket, L.B_CLASS])]
        if cpu >= 0:
            size = (
                weights.size
                * int(state.catalogue.request[cpu, class_row[L.C_SHAPE]])
                * int(class_row[L.C_NODES])
                / 1000.0
            )
    elif order is Discipline.DEADLINE:
        age = 0.0
        due = (L.DEADLINE_SLOPE * now_ms - key) / L.POINT
    return PriorityParts(
        job=job, discipline=order.value, age=age, fairshare=fair, fair_factor=factor, qos=of_qos, queue=of_queue,
        priority=nice, size=size, deadline=due, total=age + fair + of_qos + of_queue + nice + size + due,
    )  # fmt: skip
