"""The variables that jobs written for Slurm or PBS expect, beside HAL's own.

Pure. Those that all steps of a job share are of its template; those of one step are added on its node. What only the
submitter knows (tasks, directories) the translation of the script has put into the job's own variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hal.core.model.job import Dialect, JobSpec

MIB = 1 << 20


def job_variables(dialect: Dialect, job_id: int, *, name: str, queue: str, spec: JobSpec) -> dict[str, str]:
    """Return the variables that all steps of a job share."""
    cpus = max(spec.request.get("cpu", 0) // 1000, 1)
    if dialect is Dialect.PBS:
        return {
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_JOBID": f"{job_id}[]" if spec.array else str(job_id),
            "PBS_JOBNAME": name,
            "PBS_QUEUE": queue,
            "PBS_NP": str(cpus),
            "NCPUS": str(cpus),
        }
    env = {
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOBID": str(job_id),
        "SLURM_JOB_NAME": name,
        "SLURM_JOB_PARTITION": queue,
        "SLURM_CLUSTER_NAME": "hal",
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": f"{cpus}(x{spec.nodes})" if spec.nodes > 1 else str(cpus),
    }
    for variable, value in (
        ("SLURM_JOB_ACCOUNT", spec.account),
        ("SLURM_JOB_USER", spec.user),
        ("SLURM_JOB_QOS", spec.qos),
    ):
        if value:
            env[variable] = value
    per_device = {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"} & spec.env.keys()
    if (memory := spec.request.get("memory", 0)) and not per_device:
        env["SLURM_MEM_PER_NODE"] = str(memory // MIB)
    if spec.array is not None:
        first, last = spec.array.index(0), spec.array.index(spec.array.count - 1)
        env |= {
            "SLURM_ARRAY_JOB_ID": str(job_id),
            "SLURM_ARRAY_TASK_COUNT": str(spec.array.count),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last),
            "SLURM_ARRAY_TASK_STEP": str(spec.array.step),
        }
    return env


def step_variables(
    dialect: str,
    shared: Mapping[str, str],
    *,
    job: int,
    array_index: int,
    restarts: int,
    rank: int,
    nodes: Sequence[str],
    node: str,
) -> dict[str, str]:
    """Return the variables of one step.

    In an array SLURM_JOB_ID is `42_7`: Slurm gives each task a number of its own, and scripts name directories by it.

    Args:
        dialect: of the template; '' for none.
        shared: the job's variables, which say whether it is an array.
        rank: of the node among `nodes`, from 0.
    """
    if dialect == Dialect.PBS:
        if shared.get("PBS_JOBID", "").endswith("[]"):
            return {"PBS_JOBID": f"{job}[{array_index}]", "PBS_ARRAY_INDEX": str(array_index)}
        return {}
    if dialect != Dialect.SLURM:
        return {}
    env = {
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_NODELIST": ",".join(nodes),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_NODEID": str(rank),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": node,
    }
    if restarts:
        env["SLURM_RESTART_COUNT"] = str(restarts)
    if "SLURM_ARRAY_JOB_ID" in shared:
        one = f"{job}_{array_index}"
        env |= {"SLURM_JOB_ID": one, "SLURM_JOBID": one, "SLURM_ARRAY_TASK_ID": str(array_index)}
    return env
