"""Scripts of the kinds that sites publish, examples/slurm, submitted as they are: each runs, or is refused by name."""

from __future__ import annotations

import contextlib
import getpass
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hal.cli.main import main
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home
from tests.programs import path_without

SCRIPTS = Path(__file__).parents[2] / "examples" / "slurm"

pytestmark = pytest.mark.slow

# What the scripts call and a test machine lacks; none of it is part of HAL.
PROGRAMS = {
    "module": 'echo "module $*"',
    "mpirun": 'shift; n=$1; shift; for r in $(seq $n); do "$@"; done',
    "fit": 'echo "fits with $2"',
    "conda": "true",
}
RUN = {
    "hello.sh": {"hello-{id}.out": "Hello from hello, job {id}, on n1\n"},
    "openmp.sh": {"openmp-{id}.out": "threads: 4\n"},
    "array-over-files.sh": {"files-{id}_2.out": "task 2 of 3: b.dat\n"},
    "array-throttled.sh": {f"throttled-{n}.out": f"seed {n}00, from 1 to 9\n" for n in (1, 3, 5, 7, 9)},
    "mpi-one-node.sh": {"mpi-{id}.out": "module load openmpi\n" + "solved 1\n" * 4},
    "hybrid.sh": {"hybrid-{id}.out": "solved 2\n" * 2},
    "gpu-training.sh": {"train-{id}.log": "gpus: 1 in gpu\n", "train-{id}.err": "epoch 1\n"},
    "gpu-model.sh": {"model-{id}.out": "gpus: 2, cores: 4, memory: 512 MiB each\n"},
    "conda.sh": {"conda-{id}.out": "fits with 1\n"},
    "modules.sh": {"modules-{id}.out": "module purge\nmodule load gcc/12 openmpi\nmodel large of hal\n"},
    "clean-environment.sh": {"clean-{id}.out": "project: none, submitted in {here}\n"},
    "chain.sh": {"chain.out": "part 1\npart 2\n"},
    "checkpoint.sh": {"checkpoint.out": "begins\n", "state": "saved\n"},
    "mail.sh": {"mail-{id}.out": "done\n"},
    "scratch.sh": {"scratch-0.result": "from {id}_0\n", "scratch-1.result": "from {id}_1\n"},
    "python-script": {"python-{id}.out": "cores 2 arguments ['--fold', '7']\n"},
    "output-files.sh": {"logs/output-{user}-{id:04}.out": "out\n", "logs/output.err": "err\n"},
    "constraints.sh": {"constraints-{id}.out": "on n1\n"},
    "pbs.sh": {"pbs-1.out": "pbs 1 with 2 cores\n", "pbs-2.out": "pbs 2 with 2 cores\n"},
    "exclusive.sh": {"exclusive-{id}.out": "all 8 cores of n1\n"},
    "two-schedulers.sh": {"both-{id}.out": "cores: 2\n"},
}
"""What each of them leaves, and where."""
ARGUMENTS = {"chain.sh": ("1",), "python-script": ("--", "--fold", "7")}
REFUSED = {
    "mpi-many-nodes.sh": "line 8 calls srun, which HAL has not: 'srun ./solver'",
    "heterogeneous.sh": "hetjob: write the parts as groups",
}
ON_TWO_NODES = "many-nodes.sh"
FAIL = {"steps.sh": "line 8 calls srun, which comes with Slurm"}


class Site(NamedTuple):
    """A HAL with a queue and labels as the scripts expect them, and the directory where they are submitted."""

    live: LiveHal
    here: Path
    ids: dict[str, int]
    said: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All scripts that run are submitted, and all jobs have ended."""
    here = tmp_path_factory.mktemp("slurm")
    furnish(here)
    live = LiveHal(new_home())
    live.root.mkdir(exist_ok=True)
    (live.root / "hal.toml").write_text("[queues.default]\n[queues.gpu]\n")
    found = Site(live, here, {}, {})
    try:
        labels = ("--label", "gpu=a100", "--label", "ssd=yes", "--label", "avx512=yes")
        live.up("--name", "n1", "--cpus", "8", "--memory", "8GiB", "--gpus", "2", *labels)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(here)
            patch.setenv("HAL_HOME", str(live.root))
            patch.setenv("PATH", f"{here / 'bin'}:{path_without('srun', here / 'programs')}")
            patch.setenv("PROJECT", "hal")
            patch.setenv("CONDA_ROOT", str(here / "conda"))
            for name in (*RUN, *FAIL):
                out, found.said[name] = _submitted(name, *ARGUMENTS.get(name, ()))
                found.ids[name] = int(out)
            out, _ = _submitted("chain.sh", "2", "-d", f"afterok:{found.ids['chain.sh']}")
            with live.client() as client:
                client.wait_all([*map(str, found.ids.values()), out.strip()], DEADLINE_S)
        yield found
    finally:
        live.remove()


def furnish(here: Path) -> None:
    """Put there what the scripts expect where they are submitted."""
    for directory in ("bin", "logs", "conda/etc/profile.d"):
        (here / directory).mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (here / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (here / "bin" / name).chmod(0o755)
    (here / "conda/etc/profile.d/conda.sh").write_text("true\n")
    (here / "inputs.txt").write_text("a.dat\nb.dat\nc.dat\n")
    (here / "solver").write_text('#!/bin/sh\necho "solved ${OMP_NUM_THREADS:-1}"\n')
    (here / "solver").chmod(0o755)


def _submitted(name: str, *words: str) -> tuple[str, str]:
    """What `hal submit` printed on both its outputs; it must work."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["submit", *(("-d", words[-1]) if "-d" in words else ()), str(SCRIPTS / name),
                     *(words[:-2] if "-d" in words else words)])  # fmt: skip
    assert code == 0, err.getvalue()
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", sorted(RUN))
def test_a_script_of_slurm_does_what_it_does_there(name: str, site: Site) -> None:
    """Its outputs are where it says, with what Slurm's variables would have given."""
    values = {"id": site.ids[name], "here": site.here, "user": getpass.getuser()}
    for path, text in RUN[name].items():
        assert (site.here / path.format(**values)).read_text() == text.format(**values)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_script_that_would_mean_something_else_is_refused(name: str, site: Site, tmp_path: Path) -> None:
    """By name, with what to use instead."""
    path = path_without("srun", tmp_path)
    ran = site.live.run("submit", "--dry-run", SCRIPTS / name, PATH=path)
    assert (ran.code, REFUSED[name] in ran.err) == (2, True), ran.err


def test_a_script_of_several_nodes_runs_on_the_first_and_launches_on_all(
    shared_hal: LiveHal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tasks on two nodes, as srun would begin them."""
    (tmp_path / "hal").write_text(f'#!/bin/sh\nexec {sys.executable} -m hal.cli.main "$@"\n')
    (tmp_path / "hal").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    path = f"{tmp_path}:{path_without('srun', tmp_path / 'programs')}"
    ran = shared_hal.run("submit", "--wait", SCRIPTS / ON_TWO_NODES, check=True, PATH=path)
    assert "nodes 2 (the script runs on the first), cpus 2 (2 tasks on each node)" in ran.err
    (output,) = tmp_path.glob("many-*.out")
    tasks = [f"task {rank} of 4, {rank % 2} on node {rank // 2}" for rank in range(4)]
    assert output.read_text().splitlines() == ["on 2 nodes, 2(x2) tasks", *tasks]


@pytest.mark.parametrize("name", sorted(FAIL))
def test_a_script_that_calls_srun_is_remarked_upon_and_fails_there(name: str, site: Site) -> None:
    """Nothing is found under that name."""
    assert FAIL[name] in site.said[name]
    with site.live.client() as client:
        assert client.job(site.ids[name]).refresh().exit_code == 127


def test_what_has_no_effect_is_said(site: Site) -> None:
    """Mail is not sent, threads are not bound; nobody learns of it only by waiting."""
    assert "ignored: --mail-type (this HAL sends no mail" in site.said["mail.sh"]
    assert "ignored: --hint (HAL does not bind threads to cores)" in site.said["openmp.sh"]


def test_every_script_of_the_directory_is_tried() -> None:
    """A new one says what becomes of it."""
    assert {path.name for path in SCRIPTS.iterdir()} == {*RUN, *REFUSED, *FAIL, ON_TWO_NODES}
