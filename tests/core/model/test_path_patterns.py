"""Paths of a job's own files: the patterns of Slurm, what is refused, and that nothing leads into another directory."""

from __future__ import annotations

import pytest
from hypothesis import given

from hal.core.model import SpecError
from hal.core.model.path_patterns import LETTERS, check_path, expand_path, values_of_job, values_of_step
from tests.core.model import specs

OF_JOB = values_of_job(42, "ann", "fit/a%b")
OF_STEP = values_of_step(4, 7, 2, 3, "node-9")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("out", "out"),
        ("job-%j.out", "job-42.out"),
        ("%A_%a.out", "42_7.out"),
        ("%05a", "00007"),
        ("%03T", "004"),
        ("%5a", "00007"),
        ("%n%t", "33"),
        ("%N.%r", "node-9.2"),
        ("%u/%x", "ann/fit_a%b"),
        ("%5x", "fit_a%b"),
        ("100%%", "100%"),
        ("%%j", "%j"),
    ],
)
def test_a_path_is_expanded_in_two_parts_as_at_once(text: str, path: str) -> None:
    """First what all steps of the job share, then the rest: a percent sign in a name is not read as a pattern."""
    assert expand_path(expand_path(text, OF_JOB), OF_STEP) == path
    assert expand_path(text, OF_JOB | OF_STEP) == path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a%q", r"stdout: '%q' is not a pattern \(patterns are %j %A %a %T %n %t %N %r %u %x, and %05a pads"),
        ("%", "'%' is not a pattern"),
        ("%99a", "'%99a' is not a pattern"),
        ("%3%", "'%3%' is not a pattern"),
        ("logs/", "'logs/' is a directory"),
        ("a\nb", "has a control character"),
        ("a\0b", "has a control character"),
        ("x" * 101, "longer than 100 bytes"),
        ("\udc80", "not valid Unicode"),
    ],
)
def test_what_is_no_path_is_refused(text: str, complaint: str) -> None:
    """The error names the field and what to write."""
    with pytest.raises(SpecError, match=complaint):
        check_path("stdout", text, 100)


def test_every_letter_has_a_value() -> None:
    """So that no checked path keeps a pattern."""
    assert set(LETTERS) | {"%"} == set(OF_JOB | OF_STEP)


@given(specs.paths)
def test_names_never_lead_into_another_directory(path: str) -> None:
    """As many slashes as were written."""
    check_path("stdout", path, 4_095)
    assert expand_path(path, OF_JOB | OF_STEP).count("/") == path.count("/")
