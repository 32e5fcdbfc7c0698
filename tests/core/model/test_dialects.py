"""The variables that jobs of Slurm and PBS expect, of the job and of a single step."""

from __future__ import annotations

from hal.core.model import ArrayRange, Dialect, JobSpec, Resources
from hal.core.model.dialects import job_variables, step_variables

SPEC = JobSpec(
    script="#!/bin/sh\n",
    account="chem",
    user="ann",
    qos="high",
    nodes=2,
    request=Resources({"cpu": 4_500, "memory": 3 << 30}),
)


def test_a_job_of_slurm_gets_what_all_its_steps_share() -> None:
    """Whole cores, memory in MiB; what it has none of is unset."""
    assert job_variables(Dialect.SLURM, 42, name="fit", queue="short", spec=SPEC) == {
        "SLURM_JOB_ID": "42",
        "SLURM_JOBID": "42",
        "SLURM_JOB_NAME": "fit",
        "SLURM_JOB_PARTITION": "short",
        "SLURM_CLUSTER_NAME": "hal",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_JOB_ACCOUNT": "chem",
        "SLURM_JOB_USER": "ann",
        "SLURM_JOB_QOS": "high",
        "SLURM_MEM_PER_NODE": "3072",
    }


def test_a_step_of_slurm_gets_its_nodes_and_its_rank() -> None:
    """The second attempt was restarted once."""
    shared = job_variables(Dialect.SLURM, 42, name="fit", queue="short", spec=SPEC)
    found = step_variables("slurm", shared, job=42, array_index=0, restarts=1, rank=1, nodes=("n1", "n2"), node="n2")
    assert found == {
        "SLURM_JOB_NODELIST": "n1,n2",
        "SLURM_NODELIST": "n1,n2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": "n2",
        "SLURM_RESTART_COUNT": "1",
    }


def test_tasks_of_an_array_have_numbers_of_their_own() -> None:
    """Scripts name directories by SLURM_JOB_ID, and no two tasks may share one."""
    spec = JobSpec(script="#!/bin/sh\n", array=ArrayRange.parse("1-9:2"))
    shared = job_variables(Dialect.SLURM, 42, name="fit", queue="q", spec=spec)
    step = step_variables("slurm", shared, job=42, array_index=7, restarts=0, rank=0, nodes=("n1",), node="n1")
    assert (step["SLURM_JOB_ID"], step["SLURM_ARRAY_TASK_ID"], shared["SLURM_ARRAY_JOB_ID"]) == ("42_7", "7", "42")
    assert [shared[f"SLURM_ARRAY_TASK_{name}"] for name in ("COUNT", "MIN", "MAX", "STEP")] == ["5", "1", "9", "2"]


def test_a_job_of_pbs_gets_those_of_pbs() -> None:
    """An array's id ends in brackets, as qstat shows it."""
    spec = JobSpec(script="#!/bin/sh\n", array=ArrayRange.parse("1-3"))
    shared = job_variables(Dialect.PBS, 42, name="fit", queue="q", spec=spec)
    assert (shared["PBS_JOBID"], shared["PBS_JOBNAME"], shared["PBS_QUEUE"], shared["NCPUS"]) == (
        "42[]",
        "fit",
        "q",
        "1",
    )
    step = step_variables("pbs", shared, job=42, array_index=2, restarts=0, rank=0, nodes=("n1",), node="n1")
    assert step == {"PBS_JOBID": "42[2]", "PBS_ARRAY_INDEX": "2"}


def test_a_job_of_neither_gets_nothing() -> None:
    """Nor a single job of PBS anything of one step."""
    assert step_variables("", {}, job=1, array_index=0, restarts=0, rank=0, nodes=("n",), node="n") == {}
    assert step_variables("pbs", {"PBS_JOBID": "1"}, job=1, array_index=0, restarts=0, rank=0, nodes=(), node="") == {}
