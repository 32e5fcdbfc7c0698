"""examples/plugin is a package that installs, passes its own tests, and decides in a running controller."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hal.client.job import Job
from hal.daemons.controller.config import read_config
from hal.daemons.controller.startup.plugins import load_policies
from tests.daemons.controller.running import Running, on_controller
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, new_home

EXAMPLE: Final = Path(__file__).resolve().parent.parent / "examples" / "plugin"
NAMES: Final = (
    "acme-cheapest",
    "acme-near-the-end",
    "acme-projects",
    "acme-quiet",
    "acme-spare-gpus",
    "acme-spread",
    "acme-wide-first",
)
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


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A job's start and its leave to go on."""
    made = Gate(tmp_path)
    yield made
    made.close()


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


@pytest.mark.slow
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
    assert set(load_policies()) == {
        "wide-first",
        "spare-gpus",
        "spread",
        "cheapest",
        "quiet",
        "near-the-end",
        "projects",
    }

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


def test_gangs_of_a_log_are_simulated_where_it_says(site: Path, tmp_path: Path) -> None:
    """Racks of 6 and 4 nodes, pairs at 0 and 1 s, six nodes at 2 s. HAL puts both pairs into the second rack; by the
    policy each is in a rack of its own, so that the six are in two."""
    (tmp_path / "site.toml").write_text('levels = ["rack"]\n[nodes]\n"n[1-6]" = "r1"\n"n[7-10]" = "r2"\n')
    (tmp_path / "acme.toml").write_text('[engine]\ndomains = "quiet"\n')
    jobs = ((1, 0, 4), (2, 1, 4), (3, 2, 12))
    lines = [f"{n} {at} -1 99 {procs} -1 -1 {procs} 99 -1 1 1 -1 -1 -1 -1 -1 -1\n" for n, at, procs in jobs]
    (tmp_path / "gangs.swf").write_text("".join(lines))
    options = ("--topology", "site.toml", "--cpus-per-node", "2", "--json")
    found = {}
    for policies in (("--policy", "easy,quiet"), ("--config", "acme.toml")):
        told = ran("-m", "hal.cli.main", "simulate", "gangs.swf", *options, *policies, at=tmp_path, site=site)
        found |= {run["policy"]: run for run in json.loads(told)}
    assert {name: run["gangs"]["mean_domains"]["rack"] for name, run in found.items()} == {
        "easy": 1.0, "quiet": pytest.approx(4 / 3, abs=0.01), "acme": pytest.approx(4 / 3, abs=0.01),
    }  # fmt: skip
    assert found["quiet"]["decides"].endswith("domains quiet")


@pytest.mark.slow
def test_hal_up_with_it_starts_jobs_where_advice_says_that_they_are_cheap(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """n2 by the README's prices; n1 when it has become cheaper, and n2 when it has not any more."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    prices = tmp_path / "prices.json"
    prices.write_text('{"n1": 0.9, "n2": 0.1}')
    live = LiveHal(new_home())
    try:
        live.home.config.write_text('[engine]\nplacement = "cheapest"\n')
        live.up("--nodes", "2", "--cpus", "2")
        with live.client() as client:

            def node() -> str:
                job = client.submit(["true"])
                job.wait(DEADLINE_S)
                return job.task().nodes[0]

            assert live.run("advice", "put", "price", str(prices), "--space", "nodes").code == 0
            chosen = [node()]
            client.put_advice("price", {"n1": 0.05}, space="nodes", delta=True)
            chosen.append(node())
            assert client.advice()[0].read_by == ("cheapest",)
            assert client.advice_values("price") == {"n1": 0.05, "n2": 0.1}
            client.put_advice("price", {"n1": 0.9}, space="nodes", delta=True, base=2)
            chosen.append(node())
            assert client.withdraw_advice("price").version == 3
            assert client.advice() == []
        assert chosen == ["n2", "n1", "n2"]
    finally:
        live.remove()


POLICY: Final = """
[qos.low]
preempt_mode = "cancel"
grace = "10s"
[qos.urgent]
priority = 1
preempts = ["low"]
"""


@pytest.mark.slow
def test_hal_up_with_it_schedules_real_processes_by_it(site: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Two nodes with GPUs. Its rule refuses in its words and fills in, its filter keeps plain work off, its score
    spreads, its order puts the wide job first, and what is about to end is not taken back although it has done less."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    live = LiveHal(new_home())
    try:
        live.home.config.write_text((EXAMPLE / "hal.toml").read_text() + POLICY)
        live.up("--nodes", "2", "--cpus", "2", "--gpus", "2")
        refused = live.run("submit", "--gpus", "1", "--", "true")
        assert refused.code == 2
        assert "refused by rule 'projects': a GPU job belongs to a project" in refused.err
        with live.client() as client:

            def job(cpus: int, walltime: str, nodes: int = 1, **more: Any) -> Job:
                request = {"cpu": cpus, "gpu": 1}
                spec = {"command": gate.command(), "request": request, "nodes": nodes, "account": "mars", **more}
                return client.submit({**spec, "walltime": walltime})

            plain = client.submit(["true"])
            apart = [job(1, "1h") for _ in range(2)]
            assert {gate.started() for _ in apart} == {f"{one.id}.0.1.0" for one in apart}
            assert {one.task().nodes for one in apart} == {("n1",), ("n2",)}
            assert (plain.refresh().state, plain.refresh().account) == ("pending", "commons")
            narrow, wide = job(2, "1h"), job(2, "1h", nodes=2)
            gate.open(2)
            assert {gate.started() for _ in range(2)} == {f"{wide.id}.0.1.{rank}" for rank in range(2)}
            gate.open(2)
            assert gate.started() == f"{narrow.id}.0.1.0"
            gate.open()
            assert {info.state for info in client.wait_all([*apart, wide, narrow], DEADLINE_S)} == {"succeeded"}
            long = job(2, "3h", qos="low")
            gate.started()
            soon = job(2, "9m", qos="low")
            gate.started()
            urgent = job(2, "1h", qos="urgent")
            assert gate.started() == f"{urgent.id}.0.1.0"
            assert long.wait(DEADLINE_S).state == "cancelled"
            gate.open(2)
            assert {info.state for info in client.wait_all([soon, urgent], DEADLINE_S)} == {"succeeded"}
    finally:
        live.remove()
