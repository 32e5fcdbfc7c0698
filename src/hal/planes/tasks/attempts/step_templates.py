"""What all steps of a job share: the part of a start that is sent once for many tasks.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from hal.core.model import Dialect, JobSpec, OnHangup, OnNodeLost, OpenMode, Service, format_amount, to_json
from hal.core.model.bundle import FILES_GATE, STAGE_MS
from hal.core.model.dialects import job_variables
from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.gpu_slices import gpu_milli
from hal.core.model.groups import GROUP, GROUP_CPUS, GROUPS, groups_text
from hal.core.model.job import Group
from hal.core.model.path_patterns import expand_path, values_of_job
from hal.core.model.rank_variables import MASTER_ADDR, MASTER_PORT
from hal.core.model.step_token import job_key
from hal.core.model.trace_ids import TRACE_CHARS, begun_by_job, below_job, share_of
from hal.core.model.umask import umask_bits
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.wire.frames.agent_keeper import StepTemplate, TemplateGate, TemplateProbe, TemplateService

HOLDING: Final = ("/bin/sh", "-c", "trap '' HUP INT QUIT USR1 USR2; while sleep 86400; do :; done")
"""What runs on the other nodes of a job whose command runs on its first one alone, until that has ended. Signals that a
job asks for are not for it."""


def holding_template(template: StepTemplate) -> StepTemplate:
    """Return what the steps on those other nodes have in common: everything but the program and its files."""
    return replace(
        template,
        command=HOLDING,
        script="",
        stdin="",
        stdout="",
        stderr="",
        append=False,
        signal="",
        signal_before_ms=0,
        interactive="",
        continues=False,
        hostfile=0,
    )


def extension_template(template: StepTemplate, base: Attempt | None, address_of: Callable[[str], str]) -> StepTemplate:
    """Return what a job's extensions have in common: they run its command, and are told where the base is.

    Args:
        base: its attempt, beside which they run; None: it has just ended.
        address_of: where other machines reach a node.
    """
    env = template.env | {"HAL_ELASTIC": "extension"}
    if base is not None:
        addresses = [address_of(node) for node in base.nodes]
        env |= {"HAL_BASE_NODES": ",".join(base.nodes), "HAL_BASE_ADDRESSES": ",".join(addresses)}
        env.setdefault(MASTER_ADDR, addresses[0])
        env.setdefault(MASTER_PORT, str(base.port))
    return replace(template, env=env, ranks=False, hostfile=0)


def step_template(
    job: LiveJob,
    secret: str,
    reached_at: Mapping[str, str],
    group: Group | None = None,
    traced_share: float = 0.0,
) -> StepTemplate:
    """Command, limits and variables of the job's steps; the keeper adds those of the single step.

    Args:
        secret: by which this HAL knows its steps.
        reached_at: variables that say where it is reached from other machines.
        group: on whose nodes they are, of a job with several.
        traced_share: of the traces of jobs without a `traceparent`: those that their steps go on with.
    """
    spec, request = job.spec, job.spec.request if group is None else group.request
    cpu_milli, memory_bytes = request.get("cpu", 0), request.get("memory", 0)
    env = {**spec.env, **reached_at}
    env["HAL_JOB_ID"] = str(job.id)
    env["HAL_JOB_NAME"] = job.name or spec.title
    if spec.comment:
        env["HAL_JOB_COMMENT"] = spec.comment
    env["HAL_QUEUE"] = job.queue
    env["HAL_ACCOUNT"] = job.account
    env["HAL_USER"] = job.user
    if cpu_milli:
        env["HAL_CPUS"] = format_amount("cpu", cpu_milli)
    if memory_bytes:
        env["HAL_MEMORY_BYTES"] = str(memory_bytes)
    if spec.ranks_per_node:
        env["HAL_RANKS_PER_NODE"] = str(spec.ranks_per_node)
        env.setdefault("OMP_NUM_THREADS", str(max(1, cpu_milli // 1000 // spec.ranks_per_node)))
    if group is not None:
        env[GROUP], env[GROUPS] = group.name, groups_text(spec.groups)
        env[GROUP_CPUS] = ",".join(format_amount("cpu", one.request.get("cpu", 0)) for one in spec.groups)
    own = group.command if group is not None else ()
    if spec.has_base:
        env["HAL_ELASTIC"] = "base"
        env["HAL_MIN_NODES"] = str(spec.nodes)
        env["HAL_MAX_NODES"] = str(spec.nodes + spec.extensions)
    if job.walltime_ms:
        env["HAL_WALLTIME_S"] = str(job.walltime_ms // 1000)
    if spec.dialect is not Dialect.HAL:
        env |= job_variables(spec.dialect, job.id, name=env["HAL_JOB_NAME"], queue=job.queue, spec=spec)
    if spec.traceparent:
        env["TRACEPARENT"] = below_job(spec.traceparent, job.id)
    elif traced_share and _goes_on(job, env, traced_share):
        env["TRACEPARENT"] = begun_by_job(job.trace_id, job.id)
    signal = spec.signal
    stdin, stdout, stderr = _streams(spec, job)
    return StepTemplate(
        command=own or spec.command or spec.arguments,
        script="" if own else spec.script,
        env=env,
        workdir=spec.workdir,
        umask=umask_bits(spec.umask),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        append=spec.open_mode is OpenMode.APPEND,
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        gpu_milli=gpu_milli(request),
        walltime_ms=job.walltime_ms or 0,
        signal=signal.name if signal else "",
        signal_before_ms=int(signal.before) if signal else 0,
        sandbox=spec.sandbox,
        interactive=spec.interactive or "",
        continues=spec.on_hangup is OnHangup.CONTINUE,
        guard=spec.on_node_lost is OnNodeLost.REQUEUE,
        user=job.user,
        key=job_key(secret, job.id),
        dialect="" if spec.dialect is Dialect.HAL else spec.dialect.value,
        gates=tuple(
            TemplateGate(gate.name, gate.phase, int(gate.deadline), gate.policy, gate.argument) for gate in spec.gates
        )
        + _file_gates(spec),
        secrets=spec.secrets,
        service=None if spec.service is None else _service(spec.service),
        hostfile=spec.ranks_of_node if spec.on_resize else 0,
        ranks=(spec.nodes > 1 or spec.has_base) and not spec.first_node,
    )


def _service(service: Service) -> TemplateService:
    ports, asked = tuple(service.ports.items()), service.readiness
    if asked is None:
        return TemplateService(ports)
    names = list(service.ports)
    return TemplateService(
        ports,
        TemplateProbe(
            asked.kind,
            int(asked.interval),
            int(asked.timeout),
            asked.successes,
            asked.failures,
            asked.http,
            names.index(asked.port) if asked.port else 0,
            asked.command,
        ),
    )


def _file_gates(spec: JobSpec) -> tuple[TemplateGate, ...]:
    """Where its steps wait for their files, and leave what is collected of them and their directory."""
    order = spec.files
    if order is None:
        return ()
    argument = to_json(order).decode()
    return tuple(
        TemplateGate(FILES_GATE, phase, STAGE_MS, GatePolicy.WAIT, argument)
        for phase in (GatePhase.PREPARING, GatePhase.FINALISING)
    )


def _goes_on(job: LiveJob, env: Mapping[str, str], traced_share: float) -> bool:
    """Whether steps go on with the trace that their job has begun."""
    known = "TRACEPARENT" not in env and len(job.trace_id) == TRACE_CHARS
    return known and share_of(job.trace_id) < traced_share


def _streams(spec: JobSpec, job: LiveJob) -> tuple[str, str, str]:
    """The paths of stdin, stdout and stderr, with what all its steps share filled in."""
    if not (spec.stdin or spec.error_path):
        return "", "", ""
    values = values_of_job(job.id, job.user, job.name or spec.title)
    return (
        expand_path(spec.stdin, values),
        expand_path(spec.stdout, values),
        expand_path(spec.error_path, values),
    )
