"""LEVEL:TIME as people write it, in one form."""

from __future__ import annotations

import pytest

from hal.core.model import JobSpec, SpecError, check_spec
from hal.core.model.topology.packing import Packing, packed_level, packing_of


def test_it_is_kept_as_the_shortest_text() -> None:
    """However the time was written."""
    assert packing_of("rack:0:30:00") == Packing("rack", 1_800_000)
    spec = check_spec(JobSpec(command=("true",), nodes=2, pack="rack: 90m"))
    assert (spec.pack, packed_level(spec.pack)) == ("rack:1h30m", "rack")
    assert packed_level("") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rack", "pack: 'rack' says no time"),
        ("rack:", "pack: 'rack:' says no time"),
        ("my rack:5m", "pack: 'my rack' is not a name"),
        (":5m", "pack: '' is not a name"),
        ("rack:soon", "pack: 'soon' is not a duration"),
        ("rack:0s", "pack: '0s' is not a time from 1ms to 366d"),
        ("rack:unlimited", "pack: 'unlimited' is not a time from 1ms to 366d"),
    ],
)
def test_what_says_no_level_or_no_time_is_refused(text: str, message: str) -> None:
    """With the field's name."""
    with pytest.raises(SpecError) as refused:
        check_spec(JobSpec(command=("true",), nodes=2, pack=text))
    assert refused.value.message == message


def test_a_level_that_is_required_is_not_only_preferred() -> None:
    """One of the two is meant."""
    with pytest.raises(SpecError, match="pack: beside within 'zone'"):
        check_spec(JobSpec(command=("true",), nodes=2, pack="rack:5m", within="zone"))
