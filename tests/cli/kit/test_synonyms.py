"""Commands and options of other schedulers are answered by what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest

from hal.cli.kit.synonyms import _SAYINGS, _SCONTROL, COMMANDS, OPTIONS, command_hint, option_hint
from hal.cli.main import COMMANDS as OURS
from hal.cli.main import root
from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


def options_of(name: str) -> set[str]:
    """All options of a command."""
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("squeue -u ann", "what 'squeue' does is here: hal jobs"),
        ("sacct", "hal attempts for what ended"),
        ("ssh n1", "hal exec -it JOB"),
        ("scontrol show job 42", "did you mean 'hal show 42'?"),
        ("scontrol show node", "did you mean 'hal node show NODE'?"),
        ("scontrol hold 42", "did you mean 'hal hold 42'?"),
        ("scontrol reconfigure", "hal update"),
        ("sbmit", "did you mean 'hal submit'?"),
    ],
)
def test_a_command_of_another_scheduler_is_answered_by_its_meaning(words: str, hint: str, hal: Hal) -> None:
    """What is only misspelt, by its spelling."""
    ran = hal(*words.split())
    assert (ran.code, hint in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("submit --time 5 -- a", "did you mean --walltime?"),
        ("submit --partition short -- a", "did you mean --queue?"),
        ("jobs --partition short", "did you mean --queue?"),
        ("run --dependency 12 -- a", "did you mean --after?"),
        ("submit --nodelist n1 -- a", "write --constraint hal.node=NAME"),
        ("submit --mail-user ann -- a", "write --notify failed,ended:ann@example.org"),
        ("submit --gres gpu:1 -- a", "did you mean --gpus or --request?"),
        ("submit --chdir /a -- a", "did you mean --workdir?"),
        ("submit --nice 5 -- a", "write --priority N: higher starts first"),
        ("submit -q short -- a", "the queue is -Q short, the QOS --qos short"),
        ("submit -p short -- a", "the queue is -Q, --queue NAME; -p is the priority"),
        ("submit -o out.txt -- a", "the output of a job goes to --stdout FILE"),
        ("submit -J fit -- a", "did you mean --name?"),
        ("submit -b now+1h -- a", "did you mean --begin?"),
        ("submit -C gpu -- a", "node labels: --constraint gpu"),
        ("jobs -t PD", "did you mean --state?"),
        ("jobs -s PD", "did you mean pending?"),
        ("jobs -s COMPLETED", "did you mean succeeded?"),
        ("jobs --me", "write --user $USER"),
        ("jobs --start", "hal why JOB says"),
        ("wait 42 -t 1h", "did you mean --timeout?"),
        ("history -S now-1h", "did you mean --since?"),
        ("history --endtime now", "did you mean --until?"),
        ("update 42 TimeLimit=10", "did you mean --walltime?"),
        ("update 42 --TimeLimit 10", "did you mean --walltime?"),
        ("update 42 walltime=10m", "--walltime"),
        ("update 42 --env A=1", "it never changes: cancel the job, and submit it again"),
        ("update --state held -t 5m", "name the jobs that are to change"),
        ("show fit", "hal jobs --name fit"),
        ("jobs -o csv", "see hal jobs --help"),
        ("jobs --usr ann", "see hal jobs --help"),
    ],
)
def test_an_option_of_another_scheduler_is_answered_by_its_meaning(words: str, hint: str, hal: Hal) -> None:
    """Only options that the command has are named."""
    ran = hal(*words.split())
    assert (ran.code, hint in ran.err) == (2, True), ran.err


def test_every_command_that_a_hint_names_exists() -> None:
    """In the table of commands, and that of scontrol."""
    for hint in (*COMMANDS.values(), *_SCONTROL.values(), *_SAYINGS.values()):
        for name in re.findall(r"hal ([a-z]+)", hint):
            assert name in OURS, hint


def test_every_option_that_a_hint_names_exists() -> None:
    """On submit, where jobs or what ended is listed, or where one waits."""
    known = options_of("submit") | options_of("jobs") | options_of("history") | options_of("wait")
    for names in OPTIONS.values():
        assert set(names) <= known, names
    for saying in _SAYINGS.values():
        assert set(re.findall(r"(?<!\S)--[a-z-]+", saying)) <= known, saying


def test_an_option_that_means_nothing_here_gets_no_hint() -> None:
    """Nor one whose counterpart the command has not; nor does a word that nobody knows."""
    assert (option_hint("--mem", {"--user"}), option_hint("--colour", {"--memory"})) == ("", "")
    assert command_hint(["frobnicate"]) == ""
