"""Taints as people write them, and what tolerates them."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError
from hal.core.model.job import JobSpec, check_spec
from hal.core.model.taint import MAX_TAINTS, MAX_TOLERATED, taints_of, untolerated


def test_taints_are_keys_with_a_value_or_none() -> None:
    """A value may have dots and slashes."""
    assert taints_of(["spot", "team=bio", "site/x=a.b"]) == {"spot": "", "team": "bio", "site/x": "a.b"}


@pytest.mark.parametrize("text", ["", "=x", "a b", "-a", "a=b c"])
def test_what_is_no_taint_is_refused(text: str) -> None:
    """The error names it and says what to write."""
    with pytest.raises(SpecError, match="is not a taint") as refused:
        taints_of([text])
    assert "KEY=VALUE" in str(refused.value.hint)


def test_a_key_is_given_once_and_taints_are_bounded() -> None:
    """Of two values neither could be meant."""
    with pytest.raises(SpecError, match="given twice"):
        taints_of(["a=1", "a=2"])
    with pytest.raises(SpecError, match=f"at most {MAX_TAINTS}"):
        taints_of([f"k{number}" for number in range(MAX_TAINTS + 1)])


def test_what_is_not_tolerated_is_named() -> None:
    """By key whatever the value; by key and value that one only."""
    taints = {"spot": "", "team": "bio"}
    assert untolerated(taints, ()) == ["spot", "team=bio"]
    assert untolerated(taints, ("team", "spot")) == []
    assert untolerated(taints, ("team=geo", "spot")) == ["team=bio"]


@pytest.mark.parametrize(
    ("tolerate", "message"),
    [
        (("a", "a"), "named twice"),
        (("a=",), "has no value"),
        (("a b",), "is not a taint"),
        (tuple(f"k{number}" for number in range(MAX_TOLERATED + 1)), "at most"),
    ],
)
def test_a_job_tolerates_taints_that_are_well_formed(tolerate: tuple[str, ...], message: str) -> None:
    """It is refused before anything is stored."""
    with pytest.raises(SpecError, match=message):
        check_spec(JobSpec(command=("true",), tolerate=tolerate))
