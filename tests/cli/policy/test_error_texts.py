"""Errors of `hal booking add` and the like speak of options; those of files and REST speak of fields."""

from __future__ import annotations

from typing import Any

import pytest

from hal.cli.policy.error_texts import in_options
from hal.core.model import ConflictError, HALError
from hal.core.model.policy import Booking, Policy
from hal.core.model.policy_change import Do, Kind, Operation, apply_operations

UPKEEP: dict[str, Any] = {"start_ms": 1, "duration": "1h", "nodes": ["n1"], "maintenance": True}
HELD = Policy(bookings={"a": Booking(name="a", start_ms=1, nodes=("n1",), users=("ann",))})


def refused(kind: Kind, entry: dict[str, Any], name: str = "b") -> tuple[HALError, Operation]:
    """What the model says about adding an entry, which it refuses."""
    operation = Operation(op=Do.ADD, kind=kind, name=name, entry=entry)
    with pytest.raises(HALError) as caught:
        apply_operations(HELD, [operation])
    return caught.value, operation


@pytest.mark.parametrize(
    ("kind", "entry", "told"),
    [
        (
            Kind.BOOKING,
            UPKEEP | {"maintenance": False},
            "booking 'b': nobody may use it (name --accounts or --users, or set --maintenance)",
        ),
        (
            Kind.BOOKING,
            UPKEEP | {"nodes": []},
            "booking 'b': reserves nothing (give --nodes, a --count of nodes, or --licences)",
        ),
        (Kind.BOOKING, UPKEEP | {"until_ms": 2}, "--until: it does not repeat (give --repeat, daily or weekly, too)"),
        (
            Kind.BOOKING,
            UPKEEP | {"maintenance": False, "users": ["bob"]},
            "booking 'b': would hold node n1 together with booking 'a' at 1970-01-01 00:00 UTC "
            "(move or shorten one of them, or set --overlap)",
        ),
        (Kind.QUEUE, {"qos": ["x"]}, "--qos: 'x' is not a QOS (declared: none)"),
        (Kind.QUEUE, {"weights": {"age": -1}}, "--weights age: -1.0 is out of range (between 0 and 1000000000000)"),
        (Kind.ACCOUNT, {"users": {"ann": -1}}, "--users ann: -1.0 is out of range (between 0 and 1000000000)"),
        (
            Kind.QUEUE,
            {"default_walltime": "2h", "max_walltime": "1h"},
            "queue 'b': --default-walltime 2h is longer than --max-walltime 1h",
        ),
        (
            Kind.LIMIT,
            {},
            "limit 'b': has no limit (give one of --running, --pending, --resources, --hours, --max-job, "
            "--max-nodes, --max-walltime)",
        ),
    ],
)
def test_an_error_names_the_option_to_give(kind: Kind, entry: dict[str, Any], told: str) -> None:
    """And the entry as people call it; it is the same kind of error, so the exit code is the same."""
    error, operation = refused(kind, entry)
    assert str(in_options(error, operation)) == told
    assert type(in_options(error, operation)) is type(error)
    assert "--" not in str(error)


def test_who_adds_what_is_there_is_told_the_command() -> None:
    """`set` alone is a word of REST."""
    error, operation = refused(Kind.BOOKING, UPKEEP, "a")
    told = in_options(error, operation)
    assert isinstance(told, ConflictError)
    assert str(told) == "booking 'a' already exists (`hal booking set` changes some of its fields)"


def test_what_is_wrong_with_another_entry_keeps_its_address() -> None:
    """A QOS that a queue names cannot be taken out: the queue was not typed here."""
    other = Operation(op=Do.SET, kind=Kind.QUEUE, name="other", entry={})
    error, _ = refused(Kind.QUEUE, {"qos": ["x"]})
    assert str(in_options(error, other)) == str(error)
