"""Errors of the command line say what to do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

Hal = Callable[..., Ran]
LIST = 'a list in JSON is such as ["a.dat", "b.dat"]'


@pytest.mark.parametrize(
    ("text", "words", "step"),
    [
        ("#!/bin/sh\n#SBATCH --time\ntrue\n", ("submit",), "write it behind the option: --time VALUE"),
        ("#!/bin/sh\n#PBS -l\ntrue\n", ("submit",), "write it behind the option: -l VALUE"),
        (" \n", ("submit",), "check that it is the right file, and was written"),
        ("a.dat\n", ("submit", "--from-json"), LIST),
        ("{}", ("submit", "--from-json"), LIST),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_next_step(
    hal: Hal, tmp_path: Path, text: str, words: tuple[str, ...], step: str
) -> None:
    """Before anything is asked of a controller."""
    path = tmp_path / "file"
    path.write_text(text)
    ran = hal(*words, path, *(("--", "true") if "--from-json" in words else ()))
    assert (ran.code, step in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("words", "step"),
    [
        ("submit -a 0 -- a", "the task of index 0 alone is 0-0"),
        ("submit -t -1 -- a", "write a positive duration"),
        ("submit", "name a file (- is standard input)"),
    ],
)
def test_what_cannot_be_submitted_is_refused_with_the_next_step(hal: Hal, words: str, step: str) -> None:
    """Before anything is asked of a controller."""
    ran = hal(*words.split())
    assert (ran.code, step in ran.err) == (2, True), ran.err


def test_a_script_without_its_first_line_is_refused_with_that_line(hal: Hal, tmp_path: Path) -> None:
    """The suffix says that it is no job file."""
    path = tmp_path / "job.sh"
    path.write_text("hostname\n")
    ran = hal("submit", path)
    assert (ran.code, "#!/bin/sh" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("option", ["--ship", "--workdir", "--stdout"])
def test_an_empty_path_is_refused(hal: Hal, option: str) -> None:
    """The variable behind it is not set: the job would run or write somewhere else."""
    ran = hal("submit", option, "", "--", "true")
    assert (ran.code, "it is empty" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("option", ["--user", "--name", "--queue", "--account", "--state", "--label"])
def test_an_empty_filter_is_refused_rather_than_ignored(hal: Hal, option: str) -> None:
    """`hal cancel --user "$WHO" -s pending -y` would cancel the jobs of everybody."""
    ran = hal("cancel", "-y", "-s", "pending", option, "")
    assert (ran.code, f"{option} is empty" in ran.err) == (2, True), ran.err


def test_a_directory_in_place_of_a_file_is_refused_with_the_next_step(hal: Hal, tmp_path: Path) -> None:
    """What it is, one can look up."""
    ran = hal("submit", "--from-json", tmp_path, "--", "true")
    assert (ran.code, f"ls -ld {tmp_path}" in ran.err.replace("\n", " ")) == (2, True), ran.err


def test_a_node_without_cpus_is_refused_with_the_next_step(hal: Hal) -> None:
    """Nothing is started."""
    ran = hal("up", "--cpus", "0")
    assert (ran.code, "without them it has all of this machine" in ran.err) == (2, True), ran.err
