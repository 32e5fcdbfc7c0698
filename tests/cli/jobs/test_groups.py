"""Groups of nodes on the command line: `--group`, or ` : ` between the options of each, as Slurm has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]
PARTS = [
    {"name": "0", "request": {"cpu": "2"}},
    {"name": "1", "nodes": 4, "request": {"cpu": "8", "gpu": "8"}},
]


@pytest.fixture(autouse=True)
def controller(serve: Serve) -> None:
    """Checks whatever it is asked to."""

    def answer(asked: Asked) -> Reply:
        return as_json({"ids": [str(n + 1) for n in range(len(asked.json["jobs"]))]}, 201)

    serve(answer)


def groups(hal: Hal, *words: str) -> list[dict[str, Any]]:
    """The groups of the job that such a command line would submit."""
    found: list[dict[str, Any]] = json.loads(hal("submit", "--dry-run", "--json", *words).out)[0]["groups"]
    return found


def test_a_colon_between_options_begins_another_group(hal: Hal) -> None:
    """Before a command, and before a script with arguments, which may have colons."""
    assert groups(hal, "-c", "2", "-t", "1h", ":", "-N", "4", "-c", "8", "-g", "8", "--", "x", ":", "y") == PARTS


def test_a_script_and_its_arguments_stand_behind_the_last_group(hal: Hal, tmp_path: Path) -> None:
    """A colon among its arguments is one of them."""
    script = tmp_path / "go.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    words = ("-c", "2", ":", "-N", "4", "-c", "8", "-g", "8", str(script), "a", ":", "b")
    found = json.loads(hal("submit", "--dry-run", "--json", *words).out)[0]
    assert (found["groups"], found["arguments"]) == (PARTS, ["a", ":", "b"])


def test_the_option_says_the_same(hal: Hal) -> None:
    """With names."""
    given = ("--group", "name=0,cpus=2", "--group", "name=1,nodes=4,cpus=8,gpus=8")
    assert groups(hal, *given, "--", "x") == PARTS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-c", "2", ":", "-t", "1h", "--", "x"), "--walltime is of the whole job"),
        (("--group", "name=a", ":", "-c", "2", "--", "x"), "cannot be combined"),
        (("-N", "2..4", ":", "-c", "2", "--", "x"), "is a range"),
        (("-c", "2", ":", "--nonsense", "--", "x"), "--nonsense"),
    ],
)
def test_what_is_no_group_is_refused(hal: Hal, words: tuple[str, ...], message: str) -> None:
    """And says where it belongs."""
    ran = hal("submit", *words)
    assert ran.code != 0
    assert message in ran.err
