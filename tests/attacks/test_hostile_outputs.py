"""Jobs of a user that put FIFOs, links and sockets in the place of files that HAL opens: only their own steps suffer.

(H1, attempts 96 to 99) What each kind of thing does in each place is in
tests/daemons/agent/keeper/test_keeper_planted_files.py; here whole HALs go on.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.runtime.identity import read_pid_file, running
from tests.e2e.conftest import DEADLINE_S, LiveHal, until

OVER_THE_BOUND = 70 << 20
"""Of an output; 64 MiB are kept."""


@pytest.fixture(autouse=True)
def goes_on(hal: LiveHal) -> Iterator[None]:
    """After each attack the same keeper still runs and another user's job succeeds."""
    with hal.client() as client:
        node = client.nodes()[0].name
        keeper = running(hal.home.keeper_pid(node))
        yield
        done = client.submit(["sh", "-c", "echo fine"]).wait(DEADLINE_S)
        assert done.state == "succeeded", done
        assert running(hal.home.keeper_pid(node)) == keeper
        assert client.nodes()[0].state == "up"


def shell(client: Client, script: str, **fields: object) -> Job:
    return client.submit({"command": ["sh", "-c", script], **fields})


def steps(hal: LiveHal, client: Client) -> Path:
    return hal.home.node(client.nodes()[0].name).steps


def running_now(job: Job, gone: Path) -> None:
    """Wait until the job has done what it is here for, and the controller knows that it runs."""
    until(gone.exists, "the job did not come so far")
    until(lambda: job.refresh().state == "running", "the job is not said to run")


WRITTEN = "set -e; echo begun; until [ -e $HAL_STDOUT ]; do sleep 0.01; done"
"""An output has a place to replace once its first byte was seen."""

IN_ITS_PLACE = {
    "fifo": "mkfifo $HAL_STDOUT",
    "link": "ln -s {victim} $HAL_STDOUT",
    "loop": "ln -s $HAL_STDOUT $HAL_STDOUT",
    "hard-link": "ln {victim} $HAL_STDOUT",
    "directory": "mkdir $HAL_STDOUT",
    "terminal": "ln -s /dev/tty $HAL_STDOUT",
    "zero": "ln -s /dev/zero $HAL_STDOUT",
}


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_reading_an_output_that_its_step_replaced(hal: LiveHal, client: Client, tmp_path: Path, kind: str) -> None:
    """The logs of a running job whose stdout is something else: nothing of it is read, nobody waits."""
    victim = tmp_path / "victim"
    victim.write_text("a secret of the account")
    plant = IN_ITS_PLACE[kind].format(victim=victim)
    job = shell(client, f"{WRITTEN}; rm $HAL_STDOUT; {plant}; touch {tmp_path}/ready; exec sleep 300")
    running_now(job, tmp_path / "ready")
    read = hal.run("logs", job.id)
    assert "secret" not in read.out
    job.cancel()
    assert job.wait(DEADLINE_S).state == "cancelled"
    assert "secret" not in hal.run("logs", job.id).out
    assert "stdout" in hal.run("show", job.id).out


def test_a_cancel_right_after_the_start_keeps_the_remark_about_an_output(
    hal: LiveHal, client: Client, tmp_path: Path
) -> None:
    """Also if nobody was told yet that the step runs."""
    job = shell(client, f"{WRITTEN}; rm $HAL_STDOUT; mkdir $HAL_STDOUT; touch {tmp_path}/ready; exec sleep 300")
    until((tmp_path / "ready").exists, "the job did not come so far")
    job.cancel()
    assert job.wait(DEADLINE_S).state == "cancelled"
    assert "a directory is in the place of the file" in " ".join(hal.run("show", job.id).out.split())


@pytest.mark.parametrize("link", ["ln -s", "ln"])
def test_an_output_that_leads_to_a_large_file_costs_it_nothing(
    hal: LiveHal, client: Client, tmp_path: Path, link: str
) -> None:
    """A file of the account over an output's bound: not a byte is punched out of it, or cut off."""
    victim = steps(hal, client).parent / "victim"
    with victim.open("wb") as file:
        for _ in range(OVER_THE_BOUND >> 20):
            file.write(os.urandom(1 << 20))
    before = hashlib.sha256(victim.read_bytes()).hexdigest()
    job = shell(client, f"{WRITTEN}; rm $HAL_STDOUT; {link} {victim} $HAL_STDOUT; sleep 2.5")
    assert job.wait(DEADLINE_S).state == "succeeded"
    assert hashlib.sha256(victim.read_bytes()).hexdigest() == before
    victim.unlink()


PLANTED = {
    "fifo": "mkfifo $f",
    "link": "ln -s {victim} $f",
    "dangling": "ln -s {victim}.new $f",
    "directory": "mkdir $f",
}


@pytest.mark.parametrize("ending", ["stdout", "script"])
@pytest.mark.parametrize("kind", PLANTED)
def test_files_planted_for_the_jobs_to_come(
    hal: LiveHal, client: Client, tmp_path: Path, kind: str, ending: str
) -> None:
    """Those jobs fail and say what lies where; nothing is written to what a link leads to; cancelling works."""
    victim = tmp_path / "victim"
    victim.touch()
    plant = PLANTED[kind].format(victim=victim)
    place = f"s=${{HAL_STDOUT%/*}}; d=${{s%/*}}/$((HAL_JOB_ID+i)); mkdir $d; f=$d/0.1.0.{ending}"
    attack = f"for i in 1 2 3 4 5; do {place}; {plant}; done"
    assert shell(client, attack).wait(DEADLINE_S).state == "succeeded"
    jobs = [client.submit({"script": "#!/bin/sh\necho confidential\n"}) for _ in range(5)]
    for job in jobs:
        assert job.wait(DEADLINE_S).state == "failed"
    text = hal.run("show", jobs[0].id).out
    assert "is in the place of the file" in " ".join(text.split())
    assert victim.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [victim]


@pytest.mark.parametrize("plant", ["mkfifo $d", "ln -s /tmp $d", "ln -s $d $d", "touch $d"])
def test_directories_planted_for_the_jobs_to_come(hal: LiveHal, client: Client, plant: str) -> None:
    """In place of `steps/JOB`."""
    attack = f"for i in 1 2 3; do s=${{HAL_STDOUT%/*}}; d=${{s%/*}}/$((HAL_JOB_ID+i)); {plant}; done"
    assert shell(client, attack).wait(DEADLINE_S).state == "succeeded"
    for job in [client.submit(["true"]) for _ in range(3)]:
        assert job.wait(DEADLINE_S).state == "failed"


@pytest.mark.parametrize("plant", ["mkfifo $d", "ln -s {away} $d", "ln -s $d $d", "touch $d"])
def test_a_job_that_replaces_the_directory_of_all_steps(
    hal: LiveHal, client: Client, tmp_path: Path, plant: str
) -> None:
    """Moved away, and something else in its place: other jobs fail and say so, and nothing of theirs goes elsewhere."""
    away = tmp_path / "away"
    away.mkdir()
    place = steps(hal, client)
    shell(client, f"d={place}; mv $d $d.moved; {plant.format(away=away)}").wait(DEADLINE_S)
    try:
        for job in [client.submit({"script": "#!/bin/sh\necho confidential\n"}) for _ in range(3)]:
            assert job.wait(DEADLINE_S).state == "failed"
        assert "is in the place of" in " ".join(hal.run("show", job.id).out.split())
        assert list(away.iterdir()) == []
    finally:
        place.unlink()
        place.with_name(f"{place.name}.moved").rename(place)


@pytest.mark.parametrize("plant", ["mkfifo $d", "ln -s /tmp $d", "ln -s $d $d", "touch $d"])
def test_a_job_that_replaces_its_own_directory(hal: LiveHal, client: Client, tmp_path: Path, plant: str) -> None:
    """While it runs, over several looks at its outputs: it alone loses them. (A file there ended the keeper, again and
    again.)"""
    job = shell(client, f"{WRITTEN}; d=${{HAL_STDOUT%/*}}; rm -r $d; {plant}; touch {tmp_path}/ready; sleep 2.5")
    running_now(job, tmp_path / "ready")
    hal.run("logs", job.id)
    assert job.wait(DEADLINE_S).ended


def test_a_fifo_as_the_program(client: Client, tmp_path: Path) -> None:
    """It cannot be run, and nobody reads it for the name of an interpreter."""
    os.mkfifo(tmp_path / "program", 0o700)
    for job in [client.submit([str(tmp_path / "program")]) for _ in range(6)]:
        assert job.wait(DEADLINE_S).state == "failed"


def test_a_start_finds_fifos_where_its_own_files_belong(own_hal: LiveHal) -> None:
    """A job plants them in the place of pid files, logs, locks, journals, notes, and for the next jobs; daemons are
    killed, and the next `hal up` works without a person removing anything."""
    live = own_hal.up("--nodes", "1", "--cpus", "2")
    with live.client() as client:
        name = client.nodes()[0].name
        root, node = live.root, live.home.node(name)
        places = [
            node.journal / "keeper.log",
            node.journal / "helper-1-2-3.log",
            node.journal / "keeper.new",
            node.gates / "1.0.1.0.gate",
            node.root / "keeper.lock",
            *(root / "run" / file for file in ("lock", "up.lock", "starting", f"agent-{name}.link")),
            *(root / "log" / f"{who}.{what}" for who in ("controller", f"keeper-{name}", f"agent-{name}")
              for what in ("log", "out")),
            *(node.steps / str(number) / "0.1.0.stdout" for number in range(2, 6)),
        ]  # fmt: skip
        lines = [f"mkdir -p {path.parent}; rm -f {path}; mkfifo {path}" for path in places]
        script = "\n".join(["#!/bin/sh", *lines, "sleep 300"])
        client.submit({"script": script})
        until(lambda: (node.steps / "5" / "0.1.0.stdout").exists(), "the job did not come so far")
    for who in ("controller", f"keeper-{name}", f"agent-{name}"):
        assert running(live.home.pid_file(who)) is not None, who
    assert live.run("status").code == 0
    for who in ("keeper", "agent"):
        victim = read_pid_file(live.home.pid_file(f"{who}-{name}"))
        assert victim is not None
        os.kill(victim.pid, 9)
    live.run("down", "--kill", check=True)
    for path in places:
        if not os.path.lexists(path):
            path.parent.mkdir(exist_ok=True)
            os.mkfifo(path)
    for who in ("controller", f"keeper-{name}", f"agent-{name}"):
        live.home.pid_file(who).unlink(missing_ok=True)
        os.mkfifo(live.home.pid_file(who))
    live.up()
    with live.client() as client:
        ends = [client.submit(["true"]).wait(DEADLINE_S).state for _ in range(6)]
        assert ends[-1] == "succeeded"


SHORT_LEASES = """
[leases]
heartbeat = "250ms"
node = "2s"
kill = "2s"
slack = "500ms"
"""


def test_a_user_who_stops_a_keeper_makes_no_task_run_twice_at_once(own_hal: LiveHal, tmp_path: Path) -> None:
    """Another user's task that may run elsewhere when its node is lost: its first attempt has ended, whole, when the
    second begins. (attempt 98: both ran for 7 s)"""
    own_hal.home.create()
    own_hal.home.config.write_text(SHORT_LEASES)
    live = own_hal.up("--nodes", "2", "--cpus", "2", "--memory", "1GiB")
    log = tmp_path / "log"
    log.touch()
    beat = f"while :; do echo $HAL_ATTEMPT $HAL_NODE >> {log}; sleep 0.02; done"
    with live.client() as client:
        victim = client.submit({"command": ["sh", "-c", f"setsid sh -c '{beat}' & {beat}"], "on_node_lost": "requeue"})
        until(lambda: log.read_text(), "the victim does not run")
        node = log.read_text().split()[1]
        keeper = running(live.home.keeper_pid(node))
        assert keeper is not None
        assert client.submit(["kill", "-STOP", str(keeper.pid)]).id
        try:
            until(lambda: log.read_text().count("2 n") > 40, "no second attempt began")
        finally:
            os.kill(keeper.pid, signal.SIGCONT)
        attempts = [line.split()[0] for line in log.read_text().splitlines()]
        assert "1" not in attempts[attempts.index("2") :]
        until(lambda: all(one.state == "up" for one in client.nodes()), "the node does not come back")
        victim.cancel()
        assert victim.wait(DEADLINE_S).state == "cancelled"
