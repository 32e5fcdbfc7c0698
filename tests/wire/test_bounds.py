"""The bounds of fields: the greatest value that is allowed passes, one more is refused."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
import pytest

from hal.wire import bounds
from hal.wire.frames import agent_keeper, hello, sessions, telemetry

NUMBERS = [
    (bounds.Amount, 0, 2**60 - 1),
    (bounds.Count, 0, 2**53),
    (bounds.LeaseMs, 0, 86_400_000),
    (bounds.Offset, -(2**53), 2**53),
    (bounds.Mark, 0, 2**62),
    (bounds.Pid, 0, 2**31 - 1),
    (bounds.Cpu, 0, bounds.MAX_CPUS - 1),
    (bounds.ExitCode, 0, 255),
    (bounds.SignalNumber, 0, 64),
    (bounds.Version, 0, 2**31 - 1),
    (bounds.Load, 0.0, 1e9),
]
TEXTS = [(bounds.Name, 256), (bounds.Text, 65_536), (bounds.Note, 2_000), (bounds.Pem, 16_384)]
HELD = (1, 0, 1, 0), True, 4_711, 0, 0
LISTS = [
    (hello.Held, (HELD,) * 65_537, 65_536),
    (get_type_hints(hello.Hello, include_extras=True)["features"], ("f",) * 65, 64),
    (hello.Capacity, {f"r{n}": n for n in range(65)}, 64),
    (hello.Labels, {f"l{n}": "" for n in range(257)}, 256),
    (hello.Notes, ("",) * 257, 256),
    (agent_keeper.Steps, ((1, 0, 1, 0),) * 2_001, 2_000),
]


@pytest.mark.parametrize(("kind", "least", "most"), NUMBERS)
def test_a_number_passes_up_to_its_bounds(kind: Any, least: float, most: float) -> None:
    """Both ends are allowed."""
    assert [msgspec.convert(number, kind) for number in (least, most)] == [least, most]


@pytest.mark.parametrize(("kind", "least", "most"), NUMBERS)
@pytest.mark.parametrize("above", [False, True])
def test_a_number_beyond_its_bounds_is_refused(kind: Any, least: float, most: float, above: bool) -> None:
    """One below the least, one above the most."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(most + 1 if above else least - 1, kind)


@pytest.mark.parametrize(("kind", "most"), TEXTS)
def test_a_text_passes_up_to_its_length(kind: Any, most: int) -> None:
    """Characters, not bytes."""
    assert msgspec.convert("é" * most, kind) == "é" * most


@pytest.mark.parametrize(("kind", "most"), TEXTS)
def test_a_longer_text_is_refused(kind: Any, most: int) -> None:
    """By one character."""
    with pytest.raises(msgspec.ValidationError, match=f"<= {most}"):
        msgspec.convert("e" * (most + 1), kind)


@pytest.mark.parametrize(("kind", "too_many", "most"), LISTS)
def test_a_list_of_one_too_many_is_refused(kind: Any, too_many: Any, most: int) -> None:
    """Held steps, features, resources, labels, remarks, steps."""
    with pytest.raises(msgspec.ValidationError, match=f"<= {most}"):
        msgspec.convert(too_many, kind)


@pytest.mark.parametrize(("kind", "too_many", "most"), LISTS)
def test_a_list_of_as_many_as_are_allowed_passes(kind: Any, too_many: Any, most: int) -> None:
    """One fewer than what is refused."""
    allowed = dict(list(too_many.items())[:most]) if isinstance(too_many, dict) else too_many[:most]
    assert len(msgspec.convert(allowed, kind)) == most


@pytest.mark.parametrize("kind", [telemetry.SeriesName, sessions.FileName, sessions.Shape])
def test_a_name_that_ends_with_a_newline_is_refused(kind: Any) -> None:
    """Python's `$` would let it pass."""
    assert msgspec.convert("a", kind) == "a"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("a\n", kind)


def test_an_epoch_is_believed_within_these_bounds() -> None:
    """100,000 ahead of the highest that is known, 2^40 where none is; both are what docs and peers rely on."""
    assert (bounds.MAX_EPOCH_AHEAD, bounds.MAX_FIRST_EPOCH) == (100_000, 2**40)
