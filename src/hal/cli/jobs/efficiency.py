"""`hal efficiency`: what a job used of what it asked for, and what would be enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.feed_calls import EndedAttemptInfo
    from hal.client.rest.usage_calls import KeptAttemptInfo
    from hal.client.rest.views import JobInfo

MAX_ATTEMPTS = 1_000_000
"""Ended attempts of one job that are read."""
LITTLE = 0.5
"""Less than this part of what was asked for is little: something is advised."""
CLOSE = 0.9
"""More than this part of a limit is close to it."""
ROOM = 1.25
"""How much more than was used is advised."""
MIB = 1 << 20
ALL_PROCESSES = 1
"""In `cgroup` of a usage: CPU time is that of all processes."""
SECOND_MS = 1_000
LONG_MS = 120_000
"""Of a walltime below this nothing is advised."""


class AskedOfJob(Struct, frozen=True, kw_only=True):
    """A job, as far as its efficiency follows from it."""

    id: str
    name: str
    state: str
    tasks: int
    nodes: int
    """Of a task."""
    cpu: int
    """Of a task, on all its nodes, in millicores."""
    memory: int
    """On each node."""
    gpu: int
    """Of a task, on all its nodes, in thousandths."""
    walltime: int | None


class Efficiency(Struct, frozen=True, kw_only=True):
    """What a job used of what it asked for, over its attempts that ran. Times in milliseconds, sizes in bytes."""

    job: str
    name: str
    state: str
    tasks: int
    attempts: int
    """That ran."""
    cpu: int
    """Asked for by a task, on all its nodes, in millicores."""
    ran_ms: int
    """Sum over attempts."""
    cpu_ms: int
    """CPU time used, sum over attempts."""
    cpu_part: float | None
    """Used of what was asked for, 0..1; None: it asked for none, or did not run."""
    least_cpu_part: float | None
    """Of the attempt that used the least."""
    least_cpu_task: int | None
    memory_bytes: int
    """Asked for on each node; 0: no limit."""
    max_memory_bytes: int
    """The most that one attempt used."""
    max_memory_task: int | None
    memory_part: float | None
    walltime_ms: int | None
    longest_ms: int
    """The longest attempt."""
    longest_task: int | None
    walltime_part: float | None
    partly_counted: bool
    """Of some attempts only the first process, and those it waited for, were counted."""
    gpu: int = 0
    """Asked for by a task, on all its nodes, in thousandths."""
    gpu_part: float | None = None
    """The time that GPUs worked, of that for which they were given; None: it had none, or it was not measured."""
    energy_j: float | None = None
    """Of all attempts; None: not known, there is no collector."""
    measured_energy_j: float = 0.0
    from_history: bool = False
    """The controller has removed the job: this is from what the collector keeps."""
    advice: list[str]


@command(
    "efficiency",
    output=True,
    examples="""
    hal efficiency 42
    hal efficiency 42 -o json
    hal submit --after 42 -- sh -c 'hal efficiency 42'
    """,
)
@click.argument("job", metavar="JOB")
@pass_screen
def efficiency(screen: Screen, job: str) -> None:
    """Compare what a job used with what it asked for: CPU, memory and walltime, over all attempts that have ended.

    Of an array, the CPU time is that of all tasks, and the tasks that used the least CPU, the most memory and the most
    time are named. Of a job that the controller has removed it shows what the collector keeps.
    """
    from itertools import islice

    from hal.core.model import NotFoundError, parse_task_ref

    number, task = parse_task_ref(job)
    if task is not None:
        raise click.UsageError(f"'{job}' is a task; ask about its job: hal efficiency {number}")
    try:
        asked = asked_of(screen.client.job(number).info)
    except NotFoundError as error:
        kept = _kept(screen, str(number))
        if not kept:
            raise error from None
        found = with_history(measured(asked_of_kept(kept), map(as_ended, kept)), kept)
        found = replace(found, from_history=True)
    else:
        found = measured(asked, islice(screen.client.attempts(job=str(number)), MAX_ATTEMPTS))
        found = with_history(found, _kept(screen, str(number)))
    screen.show(found, lambda: _render(screen, found))


def _kept(screen: Screen, job: str) -> list[KeptAttemptInfo]:
    """What the collector keeps of a job's attempts; nothing where there is no collector."""
    from itertools import islice

    from hal.cli.kit.collector import collector_client
    from hal.client.rest.usage_calls import kept_attempts
    from hal.core.model import HALError

    try:
        return list(islice(collector_client(screen).items_of(kept_attempts({"job": job})), MAX_ATTEMPTS))
    except HALError:
        return []


def asked_of(info: JobInfo) -> AskedOfJob:
    """Of a job that the controller has."""
    from hal.core.model import Resources

    asked: list[tuple[Mapping[str, int], int]] = [(info.request, info.nodes)]
    if groups := (info.spec or {}).get("groups"):
        asked = [(Resources.parse(one["request"]), one.get("nodes", 1)) for one in groups]
    return AskedOfJob(
        id=info.id,
        name=info.name,
        state=info.state.value,
        tasks=info.tasks,
        nodes=info.nodes,
        cpu=sum(request.get("cpu", 0) * nodes for request, nodes in asked),
        memory=max(request.get("memory", 0) for request, _ in asked),
        gpu=sum(request.get("gpu", 0) * nodes for request, nodes in asked),
        walltime=None if info.walltime is None else int(info.walltime),
    )


def asked_of_kept(kept: Sequence[KeptAttemptInfo]) -> AskedOfJob:
    """Of a job of which only ended attempts are left."""
    first, last = kept[0], {one.task: one for one in kept}
    nodes = max(len(first.nodes), 1)
    unsuccessful = [one.state for one in last.values() if one.state != "succeeded"]
    return AskedOfJob(
        id=first.job,
        name=first.name,
        state=unsuccessful[-1] if unsuccessful else "succeeded",
        tasks=len(last),
        nodes=nodes,
        cpu=first.cpu,
        memory=first.memory_bytes // nodes,
        gpu=first.gpu,
        walltime=first.walltime_ms,
    )


def as_ended(one: KeptAttemptInfo) -> EndedAttemptInfo:
    """The attempt as the controller had shown it, as far as it counts here."""
    from hal.client.rest.feed_calls import EndedAttemptInfo
    from hal.core.model import AttemptState

    return EndedAttemptInfo(
        sequence=one.id,
        job=one.job,
        task=one.task,
        attempt=one.attempt,
        state=AttemptState(one.state),
        start_ms=one.start_ms,
        end_ms=one.end_ms,
        usage={
            "user_ms": one.cpu_ms,
            "max_rss_bytes": one.peak_bytes,
            "cgroup": 0 if one.partly_counted else ALL_PROCESSES,
        },
    )


def with_history(found: Efficiency, kept: Sequence[KeptAttemptInfo]) -> Efficiency:
    """With what only the collector knows: use of GPUs, energy."""
    if not kept:
        return found
    gpu_ms = sum(one.gpu_counted_ms for one in kept)
    used_ms = sum(one.gpu_used_ms for one in kept if one.gpu_used_ms is not None)
    found = replace(
        found,
        gpu_part=used_ms / gpu_ms if gpu_ms else None,
        energy_j=round(sum(one.energy_j for one in kept), 3),
        measured_energy_j=round(sum(one.measured_energy_j for one in kept), 3),
    )
    found.advice.extend(_about_gpus(found))
    return found


def measured(info: AskedOfJob, attempts: Iterable[EndedAttemptInfo]) -> Efficiency:
    """Sum up the attempts of a job that ran."""
    from hal.cli.jobs.history_rows import cpu_ms_of
    from hal.core.model import AttemptState

    cpu, memory, walltime = info.cpu, info.memory, info.walltime
    count = ran_ms = cpu_ms = most = longest = 0
    least: float | None = None
    least_task = most_task = longest_task = None
    partly = useful = False
    for one in attempts:
        if one.start_ms is None:
            continue
        useful = useful or one.state == AttemptState.SUCCEEDED
        count += 1
        took_ms = max(one.end_ms - one.start_ms, 0)
        ran_ms += took_ms
        cpu_ms += cpu_ms_of(one)
        partly = partly or not one.usage.get("cgroup", 0) & ALL_PROCESSES
        used = one.usage.get("max_rss_bytes", 0)
        part = cpu_ms_of(one) * 1000 / (took_ms * cpu) if took_ms >= SECOND_MS and cpu else None
        if part is not None and (least is None or part < least):
            least, least_task = part, one.task
        if used > most:
            most, most_task = used, one.task
        if took_ms > longest:
            longest, longest_task = took_ms, one.task
    found = Efficiency(
        job=info.id, name=info.name, state=info.state, tasks=info.tasks, attempts=count, cpu=cpu, ran_ms=ran_ms,
        cpu_ms=cpu_ms, cpu_part=cpu_ms * 1000 / (ran_ms * cpu) if ran_ms and cpu else None, least_cpu_part=least,
        least_cpu_task=least_task, memory_bytes=memory, max_memory_bytes=most, max_memory_task=most_task,
        memory_part=most / memory if memory and count else None, walltime_ms=walltime, longest_ms=longest,
        longest_task=longest_task, walltime_part=longest / walltime if walltime and count else None,
        partly_counted=partly, gpu=info.gpu, advice=[],
    )  # fmt: skip
    if found.attempts:
        found.advice.extend(_advice(found, info.nodes, whole=useful))
    return found


def _advice(found: Efficiency, nodes: int, *, whole: bool) -> Iterable[str]:
    """What would be enough next time, as sentences.

    Args:
        whole: some attempt succeeded. Else nothing says that less would be enough: it may have failed at once.
    """
    if whole:
        yield from _about_cpu(found, nodes)
    yield from _about_memory(found, whole=whole)
    yield from _about_walltime(found, whole=whole)


def _about_cpu(found: Efficiency, nodes: int) -> Iterable[str]:
    if found.cpu_part is None or found.cpu_part >= LITTLE or found.ran_ms < SECOND_MS or found.partly_counted:
        return
    each = found.cpu // nodes
    enough = max(math.ceil(each * found.cpu_part * ROOM / 1000) * 1000, 1000)
    if enough < each:
        what = f"-c {enough // 1000} instead of {each / 1000:g} would be enough"
    else:
        what = "it waits for something, such as files or the network"
    yield f"it used {found.cpu_part:.0%} of its CPU: {what}"


def _about_memory(found: Efficiency, *, whole: bool) -> Iterable[str]:
    from hal.core.model import format_size

    used = found.max_memory_bytes
    if not used or not (whole or (found.memory_part or 0) > CLOSE):
        return
    enough = f"-m {format_size(_rounded(used))}"
    if found.memory_part is None:
        yield f"it asked for no memory, so nothing keeps it from filling its node: {enough} would be enough"
    elif found.memory_part > CLOSE:
        yield f"its memory came close to the limit: ask for more, for example {enough}"
    elif found.memory_part < LITTLE and _rounded(used) < found.memory_bytes:
        yield f"it used {found.memory_part:.0%} of its memory: {enough} would be enough"


def _about_walltime(found: Efficiency, *, whole: bool) -> Iterable[str]:
    from hal.core.model import format_duration

    if not whole and (found.walltime_part or 0) <= CLOSE:
        return
    enough = f"-t {_minutes(found.longest_ms)}"
    if found.walltime_ms is None or found.walltime_part is None:
        yield f"it has no walltime: with one, such as {enough}, it can start in gaps"
    elif found.walltime_part > CLOSE:
        yield f"it came close to its walltime: ask for more, for example {enough}"
    elif found.walltime_part < LITTLE and found.walltime_ms > LONG_MS:
        ran = format_duration(max(found.longest_ms // SECOND_MS, 1) * SECOND_MS)
        of = format_duration(found.walltime_ms)
        yield f"it ran {ran} of {of}: {enough} would be enough, and shorter jobs start earlier"


def _about_gpus(found: Efficiency) -> Iterable[str]:
    if found.gpu_part is None or found.gpu_part >= LITTLE:
        return
    fewer = "fewer of them, larger batches" if found.gpu > 1000 else "larger batches, a part of a GPU (--gpus 0.5)"
    yield f"its GPUs worked {found.gpu_part:.0%} of the time: {fewer} or faster input would use them better"


def _rounded(used: int) -> int:
    """With room, in steps of 16 MiB, or of a sixteenth of it where that is more."""
    wanted = int(used * ROOM)
    step = max(16 * MIB, 1 << max(wanted.bit_length() - 5, 0))
    return -(-wanted // step) * step


def _minutes(used_ms: int) -> str:
    """With room, in whole minutes."""
    from hal.core.model import format_duration

    return format_duration(max(math.ceil(used_ms * ROOM / 60_000), 1) * 60_000)


def _render(screen: Screen, found: Efficiency) -> None:
    from hal.cli.kit.formats import limit, span
    from hal.core.model import readable_amount

    several = found.tasks > 1

    def of_task(task: int | None) -> str:
        return f" (task {task})" if several and task is not None else ""

    cpu = ""
    if found.cpu_part is not None:
        cpu = f"{found.cpu_part:.0%} of {found.cpu / 1000:g}: {span(found.cpu_ms)} of CPU time in {span(found.ran_ms)}"
        if several and found.least_cpu_part is not None:
            cpu += f"; least {found.least_cpu_part:.0%}{of_task(found.least_cpu_task)}"
    memory = ""
    if found.max_memory_bytes:
        memory = readable_amount("memory", found.max_memory_bytes) + of_task(found.max_memory_task)
        if found.memory_part is not None:
            memory = f"{found.memory_part:.0%} of {readable_amount('memory', found.memory_bytes)}: {memory}"
        else:
            memory += ", no limit"
    time = f"{span(found.longest_ms)}{of_task(found.longest_task)}"
    if found.walltime_part is not None:
        time = f"{found.walltime_part:.0%} of {limit(found.walltime_ms)}: {time}"
    screen.fields(
        {
            "job": f"{found.job} {found.name}".rstrip(),
            "state": found.state,
            "tasks": f"{found.tasks}, {found.attempts} attempts ran" if several else "",
            "cpu": cpu,
            "memory": memory,
            "time": time if found.attempts else "",
            "gpu": f"{found.gpu_part:.0%} of {found.gpu / 1000:g}" if found.gpu_part is not None else "",
            "energy": _energy(found),
        }
    )
    if not found.attempts:
        screen.note("no attempt of it has run and ended yet")
    if found.partly_counted:
        screen.note("only the first process of each step, and those it waited for, were counted: there was no cgroup")
    if found.from_history:
        screen.note("the controller has removed this job; this is what the collector keeps of it")
    for sentence in found.advice:
        screen.line(f"advice: {sentence}")


def _energy(found: Efficiency) -> str:
    if not found.energy_j:
        return ""
    amount = f"{found.energy_j / 3_600_000:.3g} kWh" if found.energy_j >= 360_000 else f"{found.energy_j:,.0f} J"
    part = found.measured_energy_j / found.energy_j
    return f"{amount}, {part:.0%} of it measured" if part >= 0.01 else f"{amount}, estimated"
