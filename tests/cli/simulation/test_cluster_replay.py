"""`hal simulate --cluster`: jobs with GPUs on nodes of a file, placements compared, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hal.cli.main import main

ROOT = Path(__file__).parents[3]
CLUSTER = """
[topology]
levels = ["rack"]
[nodes."n[1-2]"]
cpus = 4
gpus = "a100:2"
labels = { rack = "r1" }
[nodes."n[3-4]"]
cpus = 4
gpus = "a100:2"
labels = { rack = "r2" }
taints = ["gpu"]
"""
PAIR = {"submit": 1, "run": 50, "walltime": "1m", "gpus": 2, "nodes": 2, "tolerate": ["gpu"], "user": "bob"}
JOBS: tuple[dict[str, Any], ...] = ({"submit": 0, "run": 100, "walltime": "2m", "gpus": "a100:1"}, PAIR)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Jobs and cluster."""
    jobs, cluster = tmp_path / "jobs.jsonl", tmp_path / "cluster.toml"
    jobs.write_text("\n".join(map(json.dumps, JOBS)) + "\n")
    cluster.write_text(CLUSTER)
    return str(jobs), str(cluster)


def test_placements_are_compared_by_domains_of_gangs_and_use_of_gpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[str, str]
) -> None:
    """The first job is on n1. The pair is on n3 and n4, one rack, or on n2 and n3, which come first."""
    jobs, cluster = files
    arguments = [
        "simulate", jobs, "--cluster", cluster, "--policy", "easy", "--placement", "compact,first-fit,compact+best-fit",
        "--out-jobs", str(tmp_path / "o.csv"),
    ]  # fmt: skip
    assert main([*arguments, "--json"]) == 0
    found = {one["policy"]: one for one in json.loads(capsys.readouterr().out)}
    assert [one["gangs"]["mean_domains"]["rack"] for one in found.values()] == [1.0, 2.0, 1.0]
    assert found["easy-compact+best-fit"]["decides"] == "order fcfs, backfill easy, placement best-fit, compact"
    for one in found.values():
        assert one["gpus"]["gpus"] == 8
        assert one["gpus"]["allocated"] == pytest.approx((100 + 4 * 50) / (8 * 100))
        assert (one["nodes"], one["cpus"], one["started"]) == (4, 16, 2)
    with (tmp_path / "o-easy-compact.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["user"], row["nodes"], row["gpus"]) for row in rows] == [
        ("unknown", "n1", "n1: 0"),
        ("bob", "n[3-4]", "n3: 0 1, n4: 0 1"),
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "2 jobs on 16 processors (4 nodes and 8 GPUs of cluster.toml)" in out
    assert "GPUs allocated" in out
    assert "rack domains of a gang" in out


def test_a_whole_policy_applies_to_jobs_that_name_its_queues(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[str, str]
) -> None:
    """The pool of a queue is that of the file's labels; a job too long for its queue is refused."""
    jobs, cluster = files
    config = tmp_path / "hal.toml"
    config.write_text('[queues.default]\nmax_walltime = "90s"\nnodes = ["rack=r2"]\n')
    assert main(["simulate", jobs, "--cluster", cluster, "--config", str(config), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["started"], one["refused"]) == (1, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON"),
        ("[1]", "line 3: not an object"),
        ('{"run": 1}', "line 3: submit: missing"),
        ('{"submit": 0, "run": 0}', "runs for no time"),
        ('{"submit": 0, "run": 1, "gpu": 1}', "no keyword 'gpu' hint: did you mean 'gpus'"),
        ('{"submit": 0, "run": 1, "array": "0-9"}', "array: not simulated"),
        ('{"submit": -1, "run": 1}', "line 3: submit"),
        ("1 0 -1 5 1 -1 -1 1 5 -1 1 1 -1 -1 -1 -1 -1 -1", "Standard Workload Format needs --topology"),
    ],
)
def test_a_mistake_in_a_job_names_its_line(
    capsys: pytest.CaptureFixture[str], files: tuple[str, str], line: str, message: str
) -> None:
    """Nothing is replayed then."""
    jobs, cluster = files
    with Path(jobs).open("a") as file:
        file.write(line + "\n")
    assert main(["simulate", jobs, "--cluster", cluster]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    "more",
    [
        ["--nodes", "2"], ["--topology", "x"], ["--within", "rack"], ["--queue", "q"], ["--accounts", "3"],
        ["--placement", "tightest"],
    ],
)  # fmt: skip
def test_options_that_say_otherwise_are_refused(
    capsys: pytest.CaptureFixture[str], files: tuple[str, str], more: list[str]
) -> None:
    """Nodes and jobs say themselves what they are."""
    jobs, cluster = files
    assert main(["simulate", jobs, "--cluster", cluster, *more]) == 2
    assert more[0] in capsys.readouterr().err


def test_the_example_of_a_cluster_runs(tmp_path: Path) -> None:
    """examples/simulate/cluster.sh, as docs/simulate.md names it: every job starts, compact ones on fewer racks."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ROOT / "examples" / "simulate" / "cluster.sh"
    done = subprocess.run(
        ["sh", str(script), str(tmp_path)], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    compact, first_fit, usual = json.loads((tmp_path / "placements.json").read_text())
    for one in (compact, first_fit, usual):
        assert (one["jobs"], one["started"]) == (300, 300)
        assert 0 < one["gpus"]["allocated"] < 1
    assert compact["gangs"]["mean_domains"]["rack"] < first_fit["gangs"]["mean_domains"]["rack"]
