"""Accounting on a real HAL: nothing is counted twice or left out when the collector is killed, and who sees what."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.addresses.collector import collector_address
from hal.client.rest.usage_calls import UsageInfo, kept_attempts, usage
from hal.client.sync_client import Client
from hal.core.model import StepId, UnreachableError
from hal.daemons.agent.telemetry.sampler import GpuSampler
from hal.daemons.collector.reception import WIRE_SOCKET
from hal.runtime.gpu_readings import GpuReading
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.roles import Role
from tests.e2e.conftest import DEADLINE_S, LiveHal, until
from tests.e2e.test_documents import run_page
from tests.runtime.real_runtime import run_real

MS = 1 << 45


@contextlib.contextmanager
def collector(live: LiveHal) -> Iterator[subprocess.Popen[bytes]]:
    """The collector as a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "hal.daemons.collector"], env=live.environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def asked(live: LiveHal, by: str, **filters: object) -> dict[str, UsageInfo]:
    """Usage by key, as the owner sees it."""
    with Client(collector_address(live.client().address)) as client:
        return {row.key: row for row in client.call(usage(by, since_ms=0, until_ms=MS, **filters)).rows}


def until_counted(live: LiveHal, attempts: int) -> None:
    """Wait until the history has so many."""
    path = live.root / "observability" / "history.sqlite"
    deadline = time.monotonic() + DEADLINE_S
    while recorded(path) < attempts:
        assert time.monotonic() < deadline, recorded(path)
        time.sleep(0.05)
    while not answers(live):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(live: LiveHal) -> bool:
    """Whether the collector does: the socket of one that was killed answers nobody."""
    try:
        with Client(collector_address(live.client().address), reconnect_s=0.0) as client:
            client.call(usage("user"))
    except UnreachableError:
        return False
    return True


def recorded(path: Path) -> int:
    """Attempts that are committed in the history."""
    with contextlib.suppress(sqlite3.Error), contextlib.ExitStack() as stack:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        stack.callback(database.close)
        return int(database.execute("SELECT COUNT(*) FROM attempts").fetchone()[0])
    return 0


@pytest.mark.slow
def test_a_collector_that_is_killed_while_work_ends_counts_all_of_it_once(own_hal: LiveHal) -> None:
    """Arrays end while it is killed four times; the sums are those of the controller's own attempts."""
    own_hal.up("--cpus", "8")
    jobs = []
    for number in range(4):
        with collector(own_hal):
            submitted = own_hal.run("submit", "-q", "--array", "50", "--name", f"job{number}", "--", "true", check=True)
            jobs.append(submitted.out.strip())
            until_counted(own_hal, 50 * number + 1)
    own_hal.run("wait", *jobs, check=True)
    with own_hal.client() as client:
        truth = list(client.attempts())  # 200, and those that a node sent elsewhere
    with collector(own_hal):
        until_counted(own_hal, len(truth))
        found = asked(own_hal, "job-name")
        with Client(collector_address(own_hal.client().address)) as client:
            kept = list(client.items_of(kept_attempts({"since_ms": 0, "until_ms": MS})))
    assert sorted(found) == ["job0", "job1", "job2", "job3"]
    assert sum(row.attempts for row in found.values()) == len(truth) >= 200
    assert sorted((one.job, one.task, one.attempt) for one in kept) == sorted((t.job, t.task, t.attempt) for t in truth)
    ran_ms = sum(one.end_ms - one.start_ms for one in truth if one.start_ms is not None)
    cpu_ms = sum(one.usage.get("user_ms", 0) + one.usage.get("system_ms", 0) for one in truth)
    assert sum(row.core_hours for row in found.values()) == pytest.approx(ran_ms / 3_600_000, abs=1e-5)
    assert sum(row.cpu_hours for row in found.values()) == pytest.approx(cpu_ms / 3_600_000, abs=1e-5)


@pytest.mark.slow
def test_users_see_their_own_usage_coordinators_their_account_and_operators_all(own_hal: LiveHal) -> None:
    """Ada and bob work for physics, bob for its lab, too; ann coordinates it; olga is an operator; nobody reads more by
    asking for it."""
    own_hal.up()
    for words in (
        ("account", "add", "physics", "--coordinators", "ann", "--users", "ada,bob,ann"),
        ("account", "add", "other", "--users", "ada,bob,ann"),
        ("account", "add", "lab", "--parent", "physics", "--users", "bob"),
    ):
        own_hal.run(*words, check=True)
    tokens = {
        name: own_hal.run("api-token", "create", name, "--role", role, check=True).out.strip()
        for name, role in (("ada", "user"), ("bob", "user"), ("ann", "user"), ("olga", "operator"))
    }
    for user, account in (("ada", "physics"), ("bob", "physics"), ("bob", "other"), ("bob", "lab")):
        own_hal.run("submit", "-q", "-u", user, "-A", account, "--name", f"{user}s", "--", "true", check=True)
    own_hal.run("wait", "1", "2", "3", "4", check=True)
    with collector(own_hal):
        until_counted(own_hal, 4)
        socket = own_hal.home.socket_dir() / "observability.sock"

        def seen(who: str, *words: str) -> dict[str, int] | str:
            """User and attempts of each row of `hal usage --by user`, or the error."""
            ran = own_hal.run(
                "usage", "--by", "user", "--since", "1d", "--json", *words,
                HAL_COLLECTOR=f"unix://{socket}", HAL_URL=f"unix://{own_hal.home.api_socket()}", HAL_TOKEN=tokens[who],
            )  # fmt: skip
            return {row["key"]: row["attempts"] for row in json.loads(ran.out)["rows"]} if ran.code == 0 else ran.err

        assert seen("ada") == {"ada": 1}
        assert seen("ada", "--account", "physics") == {"ada": 1}
        assert seen("ada", "--account", "other") == {}
        assert "is somebody else" in str(seen("ada", "--user", "bob"))
        assert seen("ann") == {}
        assert seen("ann", "--account", "physics") == {"ada": 1, "bob": 2}
        assert seen("ann", "--account", "physics", "--exact") == {"ada": 1, "bob": 1}
        assert seen("ann", "--account", "lab") == {"bob": 1}
        assert "--exact is about --account" in str(seen("ann", "--exact"))
        assert seen("ann", "--account", "other") == {}
        assert "is somebody else" in str(seen("ann", "--account", "other", "--user", "bob"))
        assert seen("olga") == {"ada": 1, "bob": 3}
        exported = own_hal.root / "ann.csv"
        environment = {"HAL_COLLECTOR": f"unix://{socket}", "HAL_URL": f"unix://{own_hal.home.api_socket()}"}
        for who, expected in (("ann", 0), ("bob", 3), ("olga", 4)):
            own_hal.run("history", "--export", exported, check=True, HAL_TOKEN=tokens[who], **environment)
            assert len(list(csv.DictReader(io.StringIO(exported.read_text())))) == expected, who
        refused = own_hal.run("efficiency", "1", HAL_TOKEN=tokens["bob"], **environment)
        assert "there is no job 1" in refused.err


@pytest.mark.slow
def test_gpus_that_were_held_but_idle_are_in_usage_efficiency_and_report(own_hal: LiveHal, tmp_path: Path) -> None:
    """A job holds a GPU that hal.toml declares. This machine's agent sees no GPU at work, so the test sends what one
    would: half of ten seconds at work, 500 J. It stands for all of the attempt, whatever that took."""
    own_hal.root.mkdir(exist_ok=True)
    (own_hal.root / "hal.toml").write_text('[[node.gpus]]\nmodel = "NVIDIA A100"\nuuid = "GPU-a"\n')
    own_hal.up("--name", "n1", "--cpus", "2")
    with collector(own_hal):
        go = tmp_path / "go"
        waits = ("--name", "held", "--", "sh", "-c", f"while ! test -e {go}; do sleep .1; done")
        job = own_hal.run("submit", "-q", "--gpus", "1", *waits, check=True).out.strip()
        until(lambda: answers(own_hal), "the collector does not answer")
        until(lambda: "running" in own_hal.run("show", job).out, "it does not run")

        async def main(runtime: RealRuntime) -> None:
            sender = TelemetrySender(runtime, Role.AGENT, "n1")
            sender.dial((f"unix:{own_hal.home.socket_dir() / WIRE_SOCKET}",))
            sending = runtime.spawn_task(sender.run(), "sender")
            sampler = GpuSampler()
            reading = GpuReading(uuid="GPU-a", index=0, utilisation=0.5, power_watts=50.0)
            sender.values(runtime.now_ms(), sampler.values([reading], {"0": [StepId(int(job), 0, 1, 0)]}, 10.0))
            await sender.flush(10_000)
            sending.cancel()

        run_real(tmp_path, main)
        go.touch()
        own_hal.run("wait", job, check=True)
        until_counted(own_hal, 1)
        found = asked(own_hal, "job-name")["held"]
        assert found.measured_gpu_hours == found.gpu_hours > 0
        assert found.gpu_efficiency == pytest.approx(0.5, abs=0.01)
        assert found.idle_gpu_hours == pytest.approx(found.gpu_hours / 2, abs=1e-5)
        assert 0 < found.energy_measured < 1
        assert "IDLE-GPU-H" in own_hal.run("usage", check=True).out
        efficiency = own_hal.run("efficiency", job, check=True).out
        assert "50% of 1" in efficiency
        assert "of it measured" in efficiency
        own_hal.run("report", "-f", tmp_path / "week.html", check=True)
        assert "GPUs held but idle" in (tmp_path / "week.html").read_text()


@pytest.mark.slow
def test_the_page_about_accounting_works_and_a_removed_job_has_its_efficiency(own_hal: LiveHal, tmp_path: Path) -> None:
    """docs/accounting.md in order; then the job is removed, and the collector still knows it. The report is a file."""
    own_hal.environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), own_hal.environment["PATH"]))
    out = run_page("docs/accounting.md", own_hal, tmp_path)
    assert '"by":"user"' in out
    own_hal.run("rm", "1", check=True)
    found = own_hal.run("efficiency", "1", check=True)
    assert "the controller has removed this job" in found.err
    assert "memory" in found.out
    own_hal.run("report", "-f", tmp_path / "week.html", check=True)
    assert "1 attempts had" in (tmp_path / "week.html").read_text()
