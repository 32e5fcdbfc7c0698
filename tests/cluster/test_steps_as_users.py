"""`hal` inside a step on a joined machine: its submitter, over TLS, with the step's token, while the step runs (C2)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import DEADLINE_S, WIRE_PORT, Cluster, Network

REST_PORT = 8_642
PORTS = f'[server]\nwire = "0.0.0.0:{WIRE_PORT}"\ntcp = "0.0.0.0:{REST_PORT}"\n'
ZEROS = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that serves REST over TLS, and a worker on which all jobs of this module run."""
    with Network() as network:
        made = Cluster(network, 1)
        made.head.home.config.write_text(PORTS)
        yield made.up()


def inside(cluster: Cluster, script: str, user: str = "alice") -> tuple[str, str]:
    """The state of a job of that user's on the worker, in which `hal` is this one, and what it wrote."""
    text = f'hal() {{ {sys.executable} -m hal.cli.main "$@"; }}; exec 2>&1; {script}'
    with cluster.head.client() as client:
        job = client.submit(["sh", "-c", text], user=user, constraints=["hal.node=w1"])
        return job.wait(DEADLINE_S).state, job.logs()


def test_hal_in_a_step_elsewhere_is_its_submitter(cluster: Cluster) -> None:
    """It asks the head over https; it submits and cancels as that user, sees nobody else's jobs and is no admin."""
    with cluster.head.client() as client:
        other = client.submit(["true"], user="bob", hold=True).id
    script = f"""
    set -e
    case $HAL_STEP_URL in https://*:{REST_PORT}) ;; *) exit 9;; esac
    hal whoami --json
    id=$(hal submit --hold -- true)
    hal show $id --json > /dev/null
    hal cancel $id > /dev/null
    ! hal show {other}
    ! hal cancel {other}
    ! hal submit -u bob -- true
    ! hal node cordon w1
    ! hal api-token create x --role admin
    """
    state, text = inside(cluster, script)
    assert state == "succeeded", text
    who = json.loads(text[: text.index("\n}") + 2] if "\n}" in text else text.splitlines()[0])
    assert (who["user"], who["role"], who["peer"]) == ("alice", "user", cluster.workers[0].address)
    assert "may not" in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (f"export HAL_STEP_FINGERPRINT={ZEROS}", "belongs to another HAL"),
        ("export HAL_STEP_TOKEN=halstep_x_y", "token"),
        ('export HAL_STEP_TOKEN=$(echo $HAL_STEP_TOKEN | sed "s/.$/~/")', "token"),
        ("unset HAL_STEP_TOKEN", "not running"),
        (f"export HAL_STEP_URL=http://head:{REST_PORT}", ""),
    ],
)
def test_a_step_elsewhere_with_something_else_gets_nowhere(cluster: Cluster, change: str, told: str) -> None:
    """Another authority, a forged token, none, and plain text: an error, and nobody's rights."""
    state, text = inside(cluster, f"{change}; hal whoami --json")
    assert state == "failed", text
    assert '"user"' not in text
    assert told in text
    assert "Traceback" not in text


def test_the_token_of_a_step_elsewhere_ends_with_it(cluster: Cluster, tmp_path: Path) -> None:
    """Everything that the step had, written away and used from its machine afterwards."""
    kept = tmp_path / "environment"
    state, text = inside(cluster, f"env | grep ^HAL_ > {kept}; hal whoami")
    assert state == "succeeded", text
    worker = cluster.workers[0]
    worker.env = dict(line.split("=", 1) for line in kept.read_text().splitlines())
    try:
        ran = worker.hal("whoami", check=False)
    finally:
        worker.env = {}
    assert (ran.code != 0, ran.out) == (True, "")
    assert "has ended" in ran.err
