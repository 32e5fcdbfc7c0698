"""Services on a real HAL: probes inside real steps, restarts, ports; and what other users cannot do to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hal.client.job import Job
from hal.core.model import HALError
from tests.e2e.conftest import DEADLINE_S, LiveHal, Ran, until
from tests.e2e.test_forward import fetch, forwarded
from tests.e2e.test_secrets import kill

Hal = Callable[..., Ran]
SERVE = (
    "import http.server as s, os; open('pid', 'w').write(str(os.getpid())); s.test(s.SimpleHTTPRequestHandler, "
    "port=int(os.environ['HAL_PORT_HTTP']), bind='127.0.0.1')"
)
WEB: dict[str, Any] = {"ports": ["http"], "readiness": {"http": "/up", "interval": "1s", "failures": 1}}


@contextmanager
def serving(live: LiveHal, directory: Path, service: object = WEB, **options: Any) -> Iterator[Job]:
    """A service that serves a directory, in which the file `up` says that it is ready."""
    with live.client() as client:
        made = client.submit([sys.executable, "-c", SERVE], workdir=str(directory), service=service, **options)
        try:
            yield made
        finally:
            client.cancel(made.id)


def ready(job: Job) -> int | None:
    return job.refresh().ready


@pytest.fixture
def up(tmp_path: Path) -> Path:
    """The file that says so."""
    return tmp_path / "up"


def test_a_server_is_ready_as_soon_as_it_answers_and_no_longer_when_it_does_not(
    shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path
) -> None:
    """A status of 404 is an answer, too: it is not ready, and `hal why` says so."""
    with serving(shared_hal, tmp_path) as job:
        until(lambda: "GET /up: status 404" in hal("why", job.id).out, "why does not say it")
        assert ready(job) == 0
        up.touch()
        until(lambda: ready(job) == 1, "it did not become ready")
        assert "1 of 1 ready" in hal("jobs").out
        assert hal("show", f"{job.id}.0").out.count("yes") == 1
        up.unlink()
        until(lambda: ready(job) == 0, "it stayed ready")


def test_a_server_that_is_killed_is_restarted_at_once_and_ready_again(
    shared_hal: LiveHal, tmp_path: Path, up: Path
) -> None:
    """The second attempt, at a port of its own."""
    up.touch()
    with serving(shared_hal, tmp_path, retries={"max": 3, "backoff": "1ms"}) as job:
        until(lambda: ready(job) == 1, "it did not become ready")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        until(lambda: job.task(0).attempt == 2 and ready(job) == 1, "it was not ready again")
        assert job.task(0).retries == 1


def test_a_port_of_a_service_is_forwarded_by_its_name(shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path) -> None:
    """HAL chose its number. A port that the job does not name, and a task that is not ready, are refused."""
    with serving(shared_hal, tmp_path, name="team/named") as job:
        refused = hal("forward", job.id, "0:http")
        assert (refused.code, f"task {job.id}.0 is not ready" in refused.err) == (6, True), refused.err
        up.write_bytes(b"here")
        until(lambda: ready(job) == 1, "it did not become ready")
        with forwarded(shared_hal, job.id, "http") as port:
            assert fetch(port, "/up") == b"here"
        refused = hal("forward", job.id, "0:admin")
        assert (refused.code, "its ports: http" in refused.err) == (3, True), refused.err


def test_a_service_is_looked_up_by_its_name(shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path) -> None:
    """Its ready task is reached where `hal endpoint` says; before it is ready, the command fails."""
    with serving(shared_hal, tmp_path, name="lookup") as job:
        until(lambda: job.refresh().state == "running", "it does not run")
        missing = hal("endpoint", "lookup")
        assert (missing.code != 0, "0 of 1 tasks are ready" in missing.err) == (True, True)
        up.write_text("from the service")
        (address,) = hal("endpoint", "lookup", "--port", "http", "--wait", "1m").out.splitlines()
        host, _, port = address.rpartition(":")
        assert host == socket.gethostname()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/up", timeout=DEADLINE_S) as answer:
            assert answer.read() == b"from the service"
        assert hal("endpoint", "lookup", "--port", "smtp").err.count("no port 'smtp'") == 1
    assert "is a service" in hal("endpoint", "no-such").err


def test_a_step_looks_up_services_of_its_user(shared_hal: LiveHal, tmp_path: Path, up: Path) -> None:
    """With the step's own token."""
    up.touch()
    with serving(shared_hal, tmp_path, name="inner"), shared_hal.client() as client:
        shared_hal.run("endpoint", "inner", "--wait", "1m", check=True)
        words = [sys.executable, "-m", "hal.cli.main", "endpoint", "inner", "--port", "http"]
        job = client.submit(words, env={"PYTHONPATH": os.pathsep.join(sys.path)})
        job.wait(check=True)
        assert shared_hal.run("logs", job.id).out.startswith(f"{socket.gethostname()}:")


def test_a_command_inside_the_step_says_whether_it_is_ready(shared_hal: LiveHal, tmp_path: Path, up: Path) -> None:
    """With the variables of the step."""
    probe = {"command": ["sh", "-c", 'test -e "$UP" && test "$HAL_JOB_NAME" = db'], "interval": "1s"}
    with shared_hal.client() as client:
        job = client.submit(["sleep", "1000"], name="db", service={"readiness": probe}, env={"UP": str(up)})
        until(lambda: job.refresh().state == "running", "it does not run")
        up.touch()
        until(lambda: ready(job) == 1, "it did not become ready")
        client.cancel(job.id)


def test_a_probe_that_hangs_is_ended_with_everything_that_it_began(shared_hal: LiveHal, tmp_path: Path) -> None:
    """A command that leaves another one behind."""
    mark = tmp_path / "began"
    nap = f"sleep 2000{os.getpid()}"
    command = ["sh", "-c", f"{nap} & echo >> {mark}; {nap}"]
    probe = {"command": command, "interval": "1h", "timeout": "1s", "failures": 1}
    with shared_hal.client() as client:
        job = client.submit(["sleep", "1000"], service={"readiness": probe})
        until(lambda: "no end within 1 s" in job.why().message, "why does not say it")
        assert mark.exists()
        until(lambda: subprocess.run(["pgrep", "-f", nap], capture_output=True).returncode == 1, "something is left")
        client.cancel(job.id)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as somebody else")
def test_safety_a_port_that_somebody_else_serves_makes_nobody_ready(shared_hal: LiveHal) -> None:
    """A stranger on the node who takes the number would be sent what is meant for the service."""
    os.seteuid(65534)
    try:
        server = socket.create_server(("", 0))
    finally:
        os.seteuid(0)
    with server, shared_hal.client() as client:
        service = {"ports": {"db": server.getsockname()[1]}, "readiness": "tcp"}
        job = client.submit(["sleep", "1000"], service=service)
        until(lambda: "somebody else's process serves port" in job.why().message, "it is believed")
        client.cancel(job.id)


def test_a_service_is_replaced_without_a_moment_in_which_nothing_is_ready(
    shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path
) -> None:
    """Looked up by its name all the while; afterwards the new command serves, and the old job is over."""
    up.touch()
    with serving(shared_hal, tmp_path, name="rolling", array=2, cpus="0.5") as job:
        until(lambda: ready(job) == 2, "it did not become ready")
        made = job.replace(env={"VERSION": 2})
        seen = set()

        def over() -> bool:
            seen.add(len(json.loads(hal("endpoint", "rolling", "-o", "json").out)["endpoints"]))
            return job.refresh().ended

        until(over, "it was not replaced")
        assert min(seen) >= 2
        assert job.info.reason == f"replaced by job {made.id}"
        assert ready(made) == 2
        assert made.info.spec is not None
        assert made.info.spec["env"]["VERSION"] == "2"
        shared_hal.run("cancel", made.id)


def test_a_replacement_that_does_not_become_ready_is_rolled_back(
    shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path
) -> None:
    """`hal replace --wait` fails with the reason, and the old job goes on."""
    up.touch()
    with serving(shared_hal, tmp_path, name="broken") as job:
        until(lambda: ready(job) == 1, "it did not become ready")
        ran = hal("replace", job.id, "--give-up-after", "1s", "--wait", "--", "sleep", "1000")
        assert ran.code == 1
        assert f"rolled back to job {job.id}: 0 of 1 tasks were ready, and no more became so within 1s" in ran.err
        assert ready(job) == 1
        assert job.info.state == "running"


def test_a_dry_run_of_a_replacement_says_what_would_change_and_changes_nothing(
    shared_hal: LiveHal, hal: Hal, tmp_path: Path, up: Path
) -> None:
    """What would be refused is refused; the service is not being replaced afterwards."""
    up.touch()
    with serving(shared_hal, tmp_path, name="previewed") as job:
        until(lambda: ready(job) == 1, "it did not become ready")
        ran = hal("replace", job.id, "--dry-run", "--cpus", "0.75", "--give-up-after", "1m", "--", "sleep", "7")
        assert ran.code == 0, ran.err
        assert [line.partition(" ")[0] for line in ran.out.splitlines()] == ["command", "request"]
        assert "→ sleep,7" in ran.out
        assert "nothing was submitted" in ran.err
        refused = hal("replace", job.id, "--dry-run", "--cpus", "1000000", "--", "sleep", "7")
        assert refused.code == 2
        assert [one.id for one in job.client.jobs(name="previewed")] == [job.id]
        assert job.info.reason == ""


@pytest.mark.parametrize(("words", "complaint"), [
    ([], "nothing is named that is to change"),
    (["x.toml", "--cpus", "2"], "takes neither a command nor options"),
    (["--"], "there is no command after --"),
])  # fmt: skip
def test_a_replacement_that_makes_no_sense_is_refused(
    hal: Hal, tmp_path: Path, words: list[str], complaint: str
) -> None:
    (tmp_path / "x.toml").write_text('command = ["x"]\nservice = true\n')
    named = [str(tmp_path / word) if word.endswith(".toml") else word for word in words]
    ran = hal("replace", "1", *named)
    assert ran.code == 2
    assert complaint in ran.err


def test_several_tasks_of_a_service_on_one_node_have_ports_of_their_own(
    shared_hal: LiveHal, tmp_path: Path, up: Path
) -> None:
    up.touch()
    with serving(shared_hal, tmp_path, array=3, cpus=1) as job:
        until(lambda: ready(job) == 3, "not all are ready")


def test_the_options_of_the_command_line_describe_a_service(hal: Hal, tmp_path: Path) -> None:
    """`hal show` says it in words."""
    words = "--port http --port admin=9000 --ready http:http/ok --ready-interval 5s --restart on-failure --retries 3"
    made = hal("submit", *words.split(), "--restart-window", "1h", "--hold", "--", "serve")
    shown = hal("show", made.out.strip()).out
    hal("cancel", made.out.strip())
    assert "restart on-failure, 3 times within 1h; ports admin=9000, http; ready: GET /ok of http, every 5s" in shown


@pytest.mark.parametrize(("words", "complaint"), [
    (["--ready", "ping"], "'ping' is no probe"),
    (["--ready-interval", "1s"], "--ready-interval: there is no probe"),
    (["--port", "http=80"], "80 belongs to root"),
])  # fmt: skip
def test_a_service_that_makes_no_sense_is_refused_before_anything_is_submitted(
    hal: Hal, words: list[str], complaint: str
) -> None:
    ran = hal("submit", *words, "--", "true")
    assert ran.code == 2
    assert complaint in ran.err


@pytest.mark.slow
def test_readiness_outlives_controller_agent_and_keeper(own_hal: LiveHal, tmp_path: Path, up: Path) -> None:
    """Each is killed, one after the other: the service is ready again without having been restarted."""
    up.touch()
    own_hal.run("up", "--restart", check=True)
    with serving(own_hal, tmp_path) as job:
        until(lambda: ready(job) == 1, "it did not become ready")
        for name in ("controller", "agent-n1", "keeper-n1"):
            kill(own_hal, name)
            until(lambda: _asked(job) == 1, f"it is not ready after {name} was killed")
        up.unlink()
        until(lambda: _asked(job) == 0, "it is asked no longer")
        assert job.task(0).attempt == 1


def _asked(job: Job) -> int | None:
    try:
        return ready(job)
    except HALError:
        return None  # the controller is not back yet
