"""Every field of the policy can be typed, and what is typed is what the model reads."""

from __future__ import annotations

import time
from typing import Any

import click
import pytest
from msgspec import Struct

from hal.cli.main import main
from hal.cli.policy.fields import HELP, entry_of, option_name, options
from hal.core.model.policy import Account, Booking, Limit, Qos, Queue
from hal.core.model.policy_text import entry_from_plain

KINDS = (Queue, Account, Qos, Limit, Booking)


def typed(kind: type[Struct], *words: str) -> dict[str, Any]:
    """The plain entry of a command line."""
    command = click.Command("x", params=list(options(kind)), callback=lambda **given: entry_of(kind, given))
    made: dict[str, Any] = command.main(list(words), standalone_mode=False)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_an_option_with_help(kind: type[Struct]) -> None:
    """Of its own name, so that nobody has to look it up."""
    fields = [field for field in kind.__struct_fields__ if field != "name"]
    assert [option.name for option in options(kind)] == fields
    assert all(option.help and option_name(str(option.name)) in option.opts[0] for option in options(kind))
    assert {field for field in fields if field not in HELP} == set()


@pytest.mark.parametrize(
    ("kind", "field", "told"),
    [
        (Queue, "hours", "When its jobs may start"),
        (Limit, "hours", "resource-hours"),
        (Queue, "nodes", "labels"),
        (Booking, "nodes", "by name"),
        (Limit, "qos", "Count jobs of this QOS"),
        (Qos, "preempts", "QOS whose running tasks"),
    ],
)
def test_a_field_is_told_as_what_it_is_there(kind: type[Struct], field: str, told: str) -> None:
    """Fields of one name mean different things in different entries."""
    (option,) = [one for one in options(kind) if one.name == field]
    assert told in str(option.help)


def test_help_lists_what_may_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Each value of an option that takes one of a few, and the examples of that command."""
    assert main(["queue", "set", "--help"]) == 0
    told = capsys.readouterr().out
    assert "--order [priority|fifo|round-robin|deadline|none]" in told
    assert "hal queue set short --accounts physics,biology --dry-run" in told
    assert main(["account", "add", "--help"]) == 0
    assert "Add an account." in capsys.readouterr().out


def test_help_offers_what_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    """Every choice of a field, and only these."""
    assert main(["queue", "set", "--help"]) == 0
    told = capsys.readouterr().out
    assert "--on-node-lost [wait|requeue|none]" in told
    assert "--preempt-mode [off|requeue|" in told
    assert typed(Queue, "--on-node-lost", "requeue") == {"on_node_lost": "requeue"}
    with pytest.raises(click.UsageError):
        typed(Queue, "--on-node-lost", "explode")


@pytest.mark.parametrize(
    ("kind", "words", "entry"),
    [
        (Queue, ["--max-walltime", "90m", "--accounts", "a,b", "--accounts", "c"], {"accounts": ["a", "b", "c"]}),
        (Queue, ["--hours", "sat,sun", "--hours", "mon 08:00-09:00"], {"hours": ["sat,sun", "mon 08:00-09:00"]}),
        (Queue, ["--no-open", "--order", "fifo", "--nodes", "gpu=a|b,!spot"], {"open": False, "order": "fifo"}),
        (Queue, ["--weights", "age=2,size=-1"], {"weights": {"age": 2.0, "size": -1.0}}),
        (Queue, ["--max-tasks", "none", "--accounts", "none"], {"max_tasks": None, "accounts": []}),
        (Queue, ["--order", "none", "--preempt-mode", "none"], {"order": None, "preempt_mode": None}),
        (Account, ["--users", "ann=2", "--users", "bob", "--closed"], {"users": {"ann": 2.0, "bob": 1.0}}),
        (Qos, ["--preempts", "low", "--usage-factor", "0.5"], {"preempts": ["low"], "usage_factor": 0.5}),
        (Limit, ["--resources", "cpu=4,memory=1GiB"], {"resources": {"cpu": "4", "memory": "1GiB"}}),
        (Limit, ["--hours", "gpu=100", "--period", "7d"], {"hours": {"gpu": "100"}, "period": "7d"}),
        (Booking, ["--start", "2030-01-01T00:00+00:00", "--licences", "m=2"], {"start_ms": 1_893_456_000_000}),
    ],
)
def test_what_is_typed_is_read(kind: type[Struct], words: list[str], entry: dict[str, Any]) -> None:
    """The plain entry holds it, and the model takes it; `none` empties, or gives the default back."""
    made = typed(kind, *words)
    assert entry.items() <= made.items()
    entry_from_plain({field: value for field, value in made.items() if value is not None}, kind, "x")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "much"])
def test_what_is_no_number_is_refused(text: str) -> None:
    """Not sent as nothing, which would give the field its default back without a word."""
    with pytest.raises(click.UsageError, match="is not a number"):
        typed(Account, "--weight", text)


def test_an_instant_may_count_from_now() -> None:
    """`+2h`, as with `hal submit --begin`."""
    before_ms = time.time() * 1000
    assert before_ms + 7_190_000 < typed(Booking, "--start", "+2h")["start_ms"] < before_ms + 7_300_000


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Limit, ["--running", "x"]),
        (Account, ["--weight", "x"]),
        (Booking, ["--licences", "m"]),
        (Queue, ["--order", "x"]),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(kind: type[Struct], words: list[str]) -> None:
    """Before anything is sent."""
    with pytest.raises(click.UsageError):
        typed(kind, *words)
