"""examples/plugin is a package that installs, passes its own tests, and decides in a running controller."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hal.daemons.controller.config import read_config
from hal.daemons.controller.plugins import load_policies
from tests.daemons.controller.running import Running, on_controller
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home

EXAMPLE: Final = Path(__file__).resolve().parent.parent / "examples" / "plugin"
NAMES: Final = ("acme-near-the-end", "acme-projects", "acme-spare-gpus", "acme-spread", "acme-wide-first")
LIMIT_S: Final = 110.0


def ran(*command: str, at: Path, site: Path | None = None) -> str:
    """What a Python program that must succeed wrote, with `site` among its packages."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    program = [sys.executable, *command]
    done = subprocess.run(
        program, cwd=at, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, so that building it leaves nothing behind."""
    copy = tmp_path_factory.mktemp("example") / "plugin"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    return copy


@pytest.fixture(scope="module")
def site(package: Path) -> Path:
    """Where pip has installed it, without a network."""
    where = package.parent / "site"
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(where))
    ran("-m", "pip", "install", "-q", *options, ".", at=package)
    return where


def test_it_passes_its_own_tests(package: Path, site: Path) -> None:
    """HAL's contract, what each policy is for, and a replay in which its order decides."""
    assert "failed" not in ran("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", at=package, site=site)


def test_the_command_finds_its_policies_by_their_entry_points(package: Path, site: Path) -> None:
    """All of them conform."""
    told = ran("-m", "hal.conformance", *NAMES, at=package, site=site)
    assert [line.partition(":")[0] for line in told.splitlines()] == list(NAMES)


def test_a_controller_with_it_decides_by_it(site: Path, monkeypatch: pytest.MonkeyPatch, hal_home: Path) -> None:
    """Its rule fills in a project and refuses; its filter keeps a job off the GPU node, which joined first."""
    monkeypatch.syspath_prepend(site)
    assert set(load_policies()) == {"wide-first", "spare-gpus", "spread", "near-the-end", "projects"}

    async def body(hal: Running) -> None:
        await hal.agent("big", cpu_milli=64_000, gpu_milli=8_000)
        await hal.agent("small")
        (plain,) = await hal.submit({"command": ["exit", "0"]})
        view = await hal.ended(plain)
        task = (await hal.http.get(f"/v1/jobs/{plain}/tasks/0")).json()
        assert (view["account"], task["nodes"]) == ("commons", ["small"])
        gpu = {"command": ["exit", "0"], "request": {"cpu": 1, "gpu": 1}}
        refused = await hal.http.post("/v1/jobs", json={"jobs": [gpu]})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-spec")
        assert refused.json()["detail"] == "refused by rule 'projects': a GPU job belongs to a project"
        assert refused.json()["hint"] == "--account PROJECT"
        (good,) = await hal.submit({**gpu, "account": "mars", "walltime": "1h"})
        assert (await hal.ended(good))["state"] == "succeeded"

    on_controller(hal_home, body, read_config((EXAMPLE / "hal.toml").read_text()))


def test_a_controller_with_it_spares_what_is_about_to_end(
    site: Path, monkeypatch: pytest.MonkeyPatch, hal_home: Path
) -> None:
    """HAL itself would take back the job that started last; that one ends in five minutes, so the other one leaves."""
    monkeypatch.syspath_prepend(site)
    load_policies()
    text = (EXAMPLE / "hal.toml").read_text()
    text += '[qos.low]\npreempt_mode = "requeue"\n[qos.urgent]\npriority = 10\npreempts = ["low"]\n'

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", cpu_milli=2_000)
        low = {"command": ["sleep"], "qos": "low", "request": {"cpu": 1}}
        (long,) = await hal.submit(low)
        await agent.until(lambda agent: len(agent.running) == 1)
        (short,) = await hal.submit({**low, "walltime": "5m"})
        await agent.until(lambda agent: len(agent.running) == 2)
        (urgent,) = await hal.submit({"command": ["exit", "0"], "qos": "urgent", "request": {"cpu": 1}})
        assert (await hal.ended(urgent))["state"] == "succeeded"
        tries = {
            job: [attempt["state"] for attempt in (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()["attempts"]]
            for job in (long, short)
        }
        assert tries[long][0] == "preempted"
        assert tries[short] == ["running"]

    on_controller(hal_home, body, read_config(text))


def test_a_log_is_simulated_by_it(site: Path, tmp_path: Path) -> None:
    """`hal simulate --config`: the wide job goes first, its rule puts both into `commons`."""
    lines = [f"{n} 0 -1 10 {procs} -1 -1 {procs} 10 -1 1 1 -1 -1 -1 -1 -1 -1\n" for n, procs in ((1, 1), (2, 8))]
    (tmp_path / "two.swf").write_text("".join(lines))
    machine = ("--nodes", "4", "--cpus-per-node", "2", "--json")
    options = ("--config", str(EXAMPLE / "hal.toml"), "--out-jobs", "jobs.csv", *machine)
    (run,) = json.loads(ran("-m", "hal.cli.main", "simulate", "two.swf", *options, at=tmp_path, site=site))
    assert [party["name"] for party in run["accounts"]] == ["commons"]
    starts = {line.split(",")[0]: line.split(",")[2] for line in (tmp_path / "jobs.csv").read_text().splitlines()[1:]}
    assert starts == {"1": "10", "2": "0"}


@pytest.mark.slow
def test_hal_up_with_it_schedules_real_processes_by_it(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hal submit` of a GPU job without a project is refused with the rule's words; a plain job runs for `commons`."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    live = LiveHal(new_home())
    try:
        shutil.copy(EXAMPLE / "hal.toml", live.home.config)
        live.up()
        refused = live.run("submit", "--gpus", "1", "--", "true")
        assert refused.code == 2
        assert "refused by rule 'projects': a GPU job belongs to a project" in refused.err
        with live.client() as client:
            ended = client.submit(["true"]).wait(DEADLINE_S, check=True)
        assert (ended.state, ended.account) == ("succeeded", "commons")
    finally:
        live.remove()
