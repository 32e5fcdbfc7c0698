"""HAL beside a real Slurm of one node: the same scripts, what they leave, their exit codes and their variables."""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hal.cli.main import main
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home
from tests.e2e.slurm_site import PROGRAMS, run_slurm
from tests.e2e.test_slurm_scripts import ARGUMENTS, RUN, SCRIPTS, furnish

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each worker has a Slurm and a HAL of its own: 20 s alone, minutes on a busy machine
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a Slurm in namespaces"),
    pytest.mark.skipif(any(shutil.which(name) is None for name in PROGRAMS), reason="Slurm is not installed"),
]

PAGE = (Path(__file__).parents[2] / "docs/from-slurm.md").read_text()
NOT_ALIKE = {"pbs.sh", "two-schedulers.sh"}
"""Written for another scheduler; what Slurm would run of it needs two nodes."""
PROBES = {
    "plain": "",
    "one-node": "-N 1",
    "threads": "-c 2 --mem=100",
    "tasks": "-n 2 --mem-per-cpu=100 -J two",
    "tasks-per-node": "--nodes=1 --ntasks-per-node=4 --cpus-per-task=2 -p gpu",
    "gpus": "--gpus=a100:2 --mem-per-gpu=50M",
    "gpus.per-task": "-n 2 --gpus-per-task=1",
    "gpus-per-node": "--gpus-per-node=2",
    "gres": "--gres=gpu:1 --cpus-per-gpu=2 --mem=1G",
    "array": "-a 1-7:3%2 -J arr",
    "nothing": "--export=NONE",
    "some": "--export=ALL,MODEL=large --comment=x --requeue",
}
"""Options, by the name of a script that writes down its variables."""
ENDS = {
    "ends-with-3": ("", "exit 3"),
    "ends-by-signal": ("", "kill -9 $$"),
    "ends-each": ("-a 0-2", "exit $SLURM_ARRAY_TASK_ID"),
    "ends-unknown": ("", "no-such-program"),
    "ends-well": ("", "false; true"),
}
STREAMS = {
    "names": ("-J a.b -o out/%x-%j-%u-%N-%n-%t-%5j-%%.o -e out/%x-%A.e", ""),
    "array-names": ("-a 2,11 -o out/%A_%a-%3a-%x.o", ""),
    "default-name.sh": ("-o out/%x.o", ""),
    "one-file": ("-o out/both.o", "echo error >&2"),
    "appended": ("-o out/appended.o --open-mode=append", "echo more"),
}
SITES_OWN = {"SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST"}
"""Named after the cluster, the machine, the queue and the directory."""
OWN_NUMBER = {"SLURM_JOB_ID", "SLURM_JOBID"}
"""A task of an array has a number of its own there, and `42_7` here."""
NOT_GIVEN = {
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "SLURM_CONF",
    "SLURM_GTIDS",
    "SLURM_JOB_GID",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_UID",
    "SLURM_NODE_ALIASES",
    "SLURM_PRIO_PROCESS",
    "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
    "SLURM_WORKING_CLUSTER",
}
"""What Slurm sets and HAL does not, as the page says."""


class Site(NamedTuple):
    """What one of the two has left of all scripts."""

    here: Path
    ids: dict[str, int]
    codes: dict[str, list[int]]
    """Exit codes of its tasks by script, in ascending order."""
    task_ids: dict[str, dict[str, str]]
    """By script and index of a task: its number; empty for HAL, where a task has none of its own."""


def _write(here: Path) -> None:
    furnish(here)
    (here / "out").mkdir()
    (here / "out/appended.o").write_text("first\n")
    for name, options in PROBES.items():
        output = f"{name}-%a.env" if "-a " in options else f"{name}.env"
        body = "export PATH=/usr/bin:/bin\nenv | grep -E '^(SLURM|CUDA|GPU)' | sort"
        _script(here / name, f"{options} -o {output}", body)
    for name, (options, body) in ENDS.items():
        _script(here / name, f"{options} -o /dev/null", body)
    for name, (options, body) in STREAMS.items():
        _script(here / name, options, f"echo {name}\n{body}")


def _script(path: Path, options: str, body: str) -> None:
    path.write_text(f"#!/bin/bash\n#SBATCH --time=5 {options}\n{body}\n")


def _submissions() -> dict[str, list[str]]:
    """By script: words after `sbatch` or `hal submit`."""
    found = {name: [str(SCRIPTS / name), *ARGUMENTS.get(name, ())] for name in RUN if name not in NOT_ALIKE}
    return found | {name: [name] for name in (*PROBES, *ENDS, *STREAMS)}


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith(("SLURM", "SBATCH", "OMP_"))]:
            patch.delenv(name)
        patch.setenv("PROJECT", "hal")
        yield patch


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch) -> Iterator[Future[Site]]:
    """Slurm runs the scripts, while HAL does: both mostly wait."""
    directory = tmp_path_factory.mktemp("slurm")
    here = directory / "here"
    _write(here)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_by_slurm, directory, here)


@pytest.fixture(scope="module")
def slurm(begun: Future[Site], ours: Site) -> Site:
    """All scripts have run there, too."""
    return begun.result()


def _by_slurm(directory: Path, here: Path) -> Site:
    submissions = {name: [word for word in words if word != "--"] for name, words in _submissions().items()}
    submissions["second"] = ["-d", "afterok:{chain.sh}", str(SCRIPTS / "chain.sh"), "2"]
    env = os.environ | {"PATH": f"{here / 'bin'}:{os.environ['PATH']}", "CONDA_ROOT": str(here / "conda")}
    found = run_slurm(directory, submissions, here, env)
    assert {name: one["error"] for name, one in found.items() if one["error"]} == {}
    return Site(
        here,
        {name: one["id"] for name, one in found.items()},
        {name: sorted(_code(task["ExitCode"]) for task in one["tasks"]) for name, one in found.items()},
        {name: {task.get("ArrayTaskId", ""): task["JobId"] for task in one["tasks"]} for name, one in found.items()},
    )


def _code(text: str) -> int:
    code, signal = map(int, text.split(":"))
    return code or (128 + signal if signal else 0)


@pytest.fixture(scope="module")
def ours(
    tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch, begun: Future[Site]
) -> Iterator[Site]:
    """All probes have run here; the scripts of the examples have a test of their own."""
    here = tmp_path_factory.mktemp("hal")
    _write(here)
    live = LiveHal(new_home())
    live.root.mkdir(exist_ok=True)
    (live.root / "hal.toml").write_text("[queues.default]\n[queues.gpu]\n")
    ids: dict[str, int] = {}
    codes: dict[str, list[int]] = {}
    try:
        live.up("--name", "n1", "--cpus", "8", "--memory", "8GiB", "--gpus", "2", "--label", "gpu=a100")
        with environment.context() as patch:
            patch.chdir(here)
            patch.setenv("HAL_HOME", str(live.root))
            for name in (*PROBES, *ENDS, *STREAMS):
                ids[name] = _submit(name)
        with live.client() as client:
            client.wait_all([str(one) for one in ids.values()], DEADLINE_S)
            for name in ENDS:
                ended = client.attempts(job=ids[name])
                codes[name] = sorted(int(one.exit_code or 0) for one in ended)
        yield Site(here, ids, codes, {})
    finally:
        live.remove()


def _submit(name: str) -> int:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["submit", name]) == 0, err.getvalue()
    return int(out.getvalue())


def variables(site: Site, name: str) -> dict[str, dict[str, str]]:
    """The variables of each task of a probe, by index."""
    found = {}
    for path in sorted(site.here.glob(f"{name}*.env")):
        index = path.stem.removeprefix(name).removeprefix("-")
        found[index] = dict(line.partition("=")[::2] for line in path.read_text().splitlines())
    return found


def written(site: Site) -> dict[str, str]:
    """What scripts have written, by the names of their files, with their own names for their numbers."""
    known = {number: name for name, number in site.ids.items() if name in STREAMS}

    def name_of(found: re.Match[str]) -> str:
        return known.get(int(found[0]), found[0])

    return {re.sub(r"\d+", name_of, path.name): path.read_text() for path in (site.here / "out").iterdir()}


@pytest.mark.parametrize("name", sorted(RUN.keys() - NOT_ALIKE))
def test_slurm_does_with_a_script_what_is_expected_of_hal(name: str, slurm: Site) -> None:
    """The table that HAL is tested by is what Slurm does; only tasks of arrays are numbered otherwise there."""
    values: dict[str, Any] = {"id": slurm.ids[name], "here": slurm.here, "user": getpass.getuser()}
    for path, text in RUN[name].items():
        written = (slurm.here / path.format(**values)).read_text()
        if name == "scratch.sh":
            (index,) = re.findall(r"-(\d)\.", path)
            assert written == f"from {slurm.task_ids[name][index]}\n"
        else:
            assert written == text.format(**values)


@pytest.mark.parametrize("name", PROBES)
def test_variables_are_those_of_slurm(name: str, slurm: Site, ours: Site) -> None:
    """Each that HAL sets has Slurm's value, and none is missing but those that the page names."""
    there, here = variables(slurm, name), variables(ours, name)
    assert there.keys() == here.keys() != set()
    for index, found in here.items():
        apart = SITES_OWN | (OWN_NUMBER if index else set())
        wanted = {key: value for key, value in there[index].items() if key not in apart | NOT_GIVEN}
        got = {key: value for key, value in found.items() if key not in apart}
        job = str(ours.ids[name])
        for key in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID"):
            if got.get(key) == job and wanted.get(key) == str(slurm.ids[name]):
                wanted[key] = job
        assert got == wanted


@pytest.mark.parametrize("name", ENDS)
def test_exit_codes_are_those_of_slurm(name: str, slurm: Site, ours: Site) -> None:
    """Of each task; a signal is 128 more."""
    assert ours.codes[name] == slurm.codes[name]


def test_output_files_are_named_and_written_as_by_slurm(slurm: Site, ours: Site) -> None:
    """With every pattern that both know, in arrays, appended, and both streams in one."""
    assert written(ours) == written(slurm)


def test_the_page_names_what_is_not_given() -> None:
    """Each variable that Slurm sets and HAL does not."""
    assert [name for name in sorted(NOT_GIVEN) if name.replace("_", "\\_") not in PAGE and name not in PAGE] == []
