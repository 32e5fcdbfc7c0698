"""The umask of a job on a real HAL: as it is given, and what the processes of its steps have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, Gate, Ran, until

Hal = Callable[..., Ran]
SHOW = "umask; : > made; mkdir below; stat -c %a made below"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a job makes files."""
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.mark.parametrize(
    ("umask", "seen"), [("", "0022 644 755"), ("0027", "0027 640 750"), ("2", "0002 664 775"), ("0", "0000 666 777")]
)
def test_a_step_runs_with_the_umask_of_its_job(client: Client, place: Path, umask: str, seen: str) -> None:
    """What it makes has the modes that follow."""
    job = client.submit(SHOW, workdir=place, umask=umask)
    assert job.wait(DEADLINE_S).state == "succeeded"
    assert job.logs().split() == seen.split()


def test_the_option_and_the_line_of_a_script_arrive_at_the_step(hal: Hal, place: Path) -> None:
    """What is typed wins over the line; `hal show` says what it is."""
    script = place / "job.sh"
    script.write_text("#!/bin/sh\n#HAL --umask 0027\numask\n")
    for options, seen in (((), "0027"), (("--umask", "077"), "0077")):
        ran = hal("submit", "--wait", *options, script)
        assert ran.code == 0, ran.err
        number = ran.out.split()[0]
        assert hal("logs", number).out.strip() == seen
        shown = dict(line.split(maxsplit=1) for line in hal("show", number).out.splitlines() if " " in line)
        assert shown["umask"] == seen


def test_a_command_inside_has_it_too(hal: Hal, client: Client, gate: Gate) -> None:
    """As everything that runs in the step."""
    job = client.submit(gate.command("true"), umask="0007")
    until(lambda: job.refresh().state == "running", "it did not run")
    assert hal("exec", job.id, "--", "sh", "-c", "umask").out == "0007\n"
    gate.open()
    assert job.wait(DEADLINE_S).state == "succeeded"


def test_its_own_output_is_created_under_it(client: Client, place: Path) -> None:
    """Which HAL opens for it."""
    job = client.submit("echo", workdir=place, stdout="out", umask="0027")
    assert job.wait(DEADLINE_S).state == "succeeded"
    assert os.stat(place / "out").st_mode & 0o777 == 0o640
