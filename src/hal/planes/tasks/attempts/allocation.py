"""From the engine's plan to attempts, and to the orders for their nodes; with it, tasks on credit.

Pure. O(starts), with a range of neighbouring tasks taken out of a job's ranges at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from hal.core.engine.plan import Rows, StartRows
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import AttemptState, EventKind, InternalError, JobSpec, StepId, TaskState
from hal.core.model.devices import HeldGpus
from hal.core.model.facts import Facts, GpuFacts, SliceFacts
from hal.core.model.gpu_slices import gpu_milli
from hal.core.model.groups import group_of
from hal.planes.tasks.attempts.credit import CREDIT_MS, credit_now, first_untried
from hal.planes.tasks.attempts.step_templates import extension_template, holding_template, step_template
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, locate, take
from hal.planes.tasks.submitter import ENGINE
from hal.planes.tasks.table.extensions import BASE
from hal.planes.tasks.table.orders import OF_EXTENSIONS, OF_GROUPS
from hal.planes.tasks.table.propagation import settle
from hal.planes.tasks.table.table import JobTable
from hal.wire.bounds import MAX_DEVICE_FILES
from hal.wire.frames.agent_keeper import StepDevice, StepStart


def allocate(
    table: JobTable,
    starts: StartRows,
    rows: Rows,
    row_name: Callable[[int], str],
    epoch: int,
    now_ms: int,
    *,
    credit: bool = False,
) -> int:
    """Make attempts of a plan's starts, and orders for their nodes; returns how many.

    Args:
        starts: shape (S,), dtype `START`, in the order decided.
        rows: the engine's node rows that `starts` point into.
        credit: nothing more can start now, so what waits may be handed over ahead of time (see `credit`).
    Raises:
        InternalError: a task does not wait for that attempt.
    """
    names = [row_name(row) for row in rows.tolist()]
    slots: dict[int, list[str]] = {}
    last_job = 0
    job: LiveJob | None = None
    taken: list[int] = []
    refused = merged = 0
    for job_id, task, number, offset, width, _ in starts.tolist():
        if job is None or job_id != last_job:
            _take_out(job, taken)
            job, last_job, taken = table.touch(job_id), job_id, []
        if task and job.request.groups:
            merged += 1  # a group of its first task: a plan has them one after the other
            continue
        task_range = locate(job.ranges, task)
        if task_range is None or task_range.attempt != number:
            raise InternalError(f"the engine started attempt {number} of {job_id}.{task}, which does not wait for it")
        if job.request.groups:
            width = job.spec.nodes
        nodes = tuple(names[offset : offset + width])
        gpus = _bind_gpus(table, job, nodes) if _asks_for_gpus(job.spec) else ()
        if gpus is None:
            table.draft.feed.refuse(job, task, number)
            refused += 1
            continue
        _begin_attempt(table, job, task_range, task, nodes, epoch, now_ms, gpus=gpus)
        taken.append(task)
        slots.setdefault(job_id, []).append(nodes[0])
    _take_out(job, taken)
    for job_id, nodes_given in slots.items():
        if credit:
            _hand_out_credit(table, table.jobs[job_id], nodes_given, epoch, now_ms)
        settle(table, table.touch(job_id), now_ms, ENGINE)
    return len(starts) - refused - merged


def _begin_attempt(
    table: JobTable,
    job: LiveJob,
    task_range: TaskRange,
    task: int,
    nodes: tuple[str, ...],
    epoch: int,
    now_ms: int,
    *,
    credit: bool = False,
    gpus: tuple[HeldGpus, ...] = (),
) -> None:
    """Make a task of the range an attempt; the caller takes it out of the job's ranges."""
    number = task_range.attempt
    attempt = Attempt(
        task=task,
        attempt=number,
        state=AttemptState.ALLOCATED,
        nodes=nodes,
        gpus=gpus,
        token=f"{table.instance}-{job.id}.{task}.{number}-{epoch:x}{table.term}",
        allocated_ms=now_ms,
        retries=task_range.retries,
        credit=credit,
        port=_port(table, job, task, nodes),
    )
    if attempt.port:
        table.take_port(job.id, attempt)
    transition(TASK, task_range.state, TaskEvent.ALLOCATE)
    job.counts.move(task_range.state, TaskState.ALLOCATED)
    job.active[task] = attempt
    table.draft.new_attempts[(job.id, task, number)] = attempt
    item: dict[str, object] = {"id": f"{job.id}.{task}.{number}", "nodes": nodes}
    if credit:
        item["credit"] = True
    table.draft.note(EventKind.ATTEMPTS_ALLOCATED, ENGINE, job.trace_id, job.id, item)
    order_start(table, job, attempt)


def _asks_for_gpus(spec: JobSpec) -> bool:
    return gpu_milli(spec.request) > 0 or any(gpu_milli(group.request) > 0 for group in spec.groups)


def _bind_gpus(table: JobTable, job: LiveJob, nodes: tuple[str, ...]) -> tuple[HeldGpus, ...] | None:
    """Choose GPUs for a new attempt on each of its nodes, in rank order, and hold them; () where no node binds any.

    None: an attempt that the same plan starts there has taken what would hold it. That happens only where what is left
    of GPUs is no sum: the engine is told of it when it has made a plan, not in the middle of one.
    """
    request, groups = job.spec.request, job.spec.groups
    gpus: list[HeldGpus] = []
    for rank, node in enumerate(nodes):
        row = table.nodes.get(node)
        if groups:
            request = groups[group_of(groups, rank)].request
        held = () if row is None or not gpu_milli(request) else table.gpus.bind(row, request)
        if held is None and table.gpus.tells:
            return None
        gpus.append(held or ())
    if not any(gpus):
        return ()
    table.gpus.take(nodes, gpus)
    return tuple(gpus)


def _port(table: JobTable, job: LiveJob, task: int, nodes: tuple[str, ...]) -> int:
    """Where the ranks of a new attempt meet; 0: it is a single process on a single node, or an extension, which is told
    that of its base."""
    extension = job.spec.has_base and job.spec.is_extension(task)
    if extension or (len(nodes) == 1 and not job.spec.ranks_per_node and not job.spec.has_base):
        return 0
    return table.ports.choose(map(table.address_of, nodes))


def _hand_out_credit(table: JobTable, job: LiveJob, nodes: list[str], epoch: int, now_ms: int) -> None:
    """Hand waiting tasks over for the slots that the engine has just given the job, each on one of these nodes."""
    most = credit_now(table, job, now_ms)
    for node in nodes if most else ():
        task_range = first_untried(job, now_ms) if node in table.credit_nodes else None
        if task_range is None:
            continue
        count = min(most, task_range.count)
        table.leave(job, replace(task_range, count=count))
        for task in range(task_range.first, task_range.first + count):
            _begin_attempt(table, job, task_range, task, (node,), epoch, now_ms, credit=True)
        job.ranges = take(job.ranges, task_range.first, count)


def _take_out(job: LiveJob | None, tasks: list[int]) -> None:
    """Take the tasks out of the job's ranges, a range of neighbours at a time."""
    if job is None:
        return
    start = 0
    for at in range(1, len(tasks) + 1):
        if at == len(tasks) or tasks[at] != tasks[at - 1] + 1:
            job.ranges = take(job.ranges, tasks[start], at - start)
            if job.window:
                job.fed = tuple(take(job.fed, tasks[start], at - start))
            start = at


def order_start(table: JobTable, job: LiveJob, attempt: Attempt, only: Collection[StepId] | None = None) -> None:
    """Order its nodes to start the attempt.

    Args:
        only: those of its steps that their node, which has just said what it holds, does not have. The others may have
            been sent before: a repeated start is harmless where it arrives, but one that waits for its node to return
            would be taken for one that never left.
    """
    array = job.spec.array
    index, count, item = (attempt.task, job.spec.tasks, "")
    if array:
        index, item = array.index(attempt.task), array.item(attempt.task)
    credit_ms = CREDIT_MS if attempt.credit else 0
    extension = job.spec.has_base and job.spec.is_extension(attempt.task)
    of_several = len(attempt.nodes) > 1 or (job.spec.has_base and not extension)
    addresses = tuple(map(table.address_of, attempt.nodes)) if of_several else ()
    for node, step in attempt.steps_left(job.id):
        if only is not None and step not in only:
            continue
        orders = table.draft.order(node)
        key = job.id if not (job.spec.first_node and step.rank) else -job.id
        if extension:
            key = job.id + OF_EXTENSIONS
        group = None
        if job.spec.groups:
            place = group_of(job.spec.groups, step.rank)
            group = job.spec.groups[place]
            key = (job.id + OF_GROUPS * (1 + place)) * (1 if key > 0 else -1)
        if key not in orders.templates:
            template = step_template(job, table.step_secret, table.reached_at, group, table.traced_share)
            if extension:
                template = extension_template(template, job.active.get(BASE), table.address_of)
            orders.templates[key] = template if key > 0 else holding_template(template)
        orders.starts.append(
            StepStart(
                step,
                key,
                attempt.token,
                attempt.nodes,
                index,
                count,
                attempt.allocated_ms,
                credit_ms,
                addresses,
                item,
                (),
                _devices(table, attempt, node, step.rank) if attempt.gpus else (),
                attempt.port,
            )
        )


def _devices(table: JobTable, attempt: Attempt, node: str, rank: int) -> tuple[StepDevice, ...]:
    """What a step is told of its GPUs; of one that its node no longer has, what it was called."""
    row = table.nodes.get(node)
    facts = Facts() if row is None else row.about.facts
    known: dict[str, tuple[GpuFacts, SliceFacts | None]] = {gpu.id: (gpu, None) for gpu in facts.gpus}
    known |= {one.uuid: (gpu, one) for gpu in facts.gpus for one in gpu.slices}
    near = {numa.id: numa.cpus for numa in facts.numa}
    told = []
    for held in attempt.gpus[rank]:
        if held.id not in known:
            told.append(StepDevice(-1, held.id, held.milli))
            continue
        gpu, part = known[held.id]
        uuid, files, memory_bytes = gpu.uuid, gpu.files, gpu.memory_bytes
        if part is not None:
            uuid, memory_bytes = part.uuid, part.memory_bytes
            files = (*files, *part.files)[:MAX_DEVICE_FILES] if files and part.files else ()
        cpus = gpu.cpus or near.get(gpu.numa, "")
        told.append(StepDevice(gpu.index, uuid, held.milli, gpu.vendor, files, max(memory_bytes, 0), cpus))
    return tuple(told)
