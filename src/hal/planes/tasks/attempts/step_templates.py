"""What all steps of a job share: the part of a start that is sent once for many tasks.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from hal.core.model import JobSpec, OnNodeLost, OpenMode, format_amount
from hal.core.model.path_patterns import expand_path, values_of_job
from hal.core.model.step_token import job_key
from hal.planes.tasks.live.job import LiveJob
from hal.wire.frames.agent_keeper import StepTemplate, TemplateGate


def step_template(job: LiveJob, secret: str, reached_at: Mapping[str, str]) -> StepTemplate:
    """Command, limits and variables of the job's steps; the keeper adds those of the single step.

    Args:
        secret: by which this HAL knows its steps.
        reached_at: variables that say where it is reached from other machines.
    """
    spec, request = job.spec, job.spec.request
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
    if job.walltime_ms:
        env["HAL_WALLTIME_S"] = str(job.walltime_ms // 1000)
    if spec.traceparent:
        env["TRACEPARENT"] = spec.traceparent
    signal = spec.signal
    stdin, stdout, stderr = _streams(spec, job)
    return StepTemplate(
        command=spec.command,
        script=spec.script,
        env=env,
        workdir=spec.workdir,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        append=spec.open_mode is OpenMode.APPEND,
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        walltime_ms=job.walltime_ms or 0,
        signal=signal.name if signal else "",
        signal_before_ms=int(signal.before) if signal else 0,
        sandbox=spec.sandbox,
        guard=spec.on_node_lost is OnNodeLost.REQUEUE,
        user=job.user,
        key=job_key(secret, job.id),
        gates=tuple(
            TemplateGate(gate.name, gate.phase, int(gate.deadline), gate.policy, gate.argument) for gate in spec.gates
        ),
        secrets=spec.secrets,
    )


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
