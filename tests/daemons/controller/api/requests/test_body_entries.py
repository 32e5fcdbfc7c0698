"""(H5) Large bodies: what is in them is counted before any of it is made a value."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.daemons.controller.api.requests.bodies import specs_of
from hal.rest.body_entries import MAX_DEPTH, MAX_ENTRIES, check_entries

MANY = MAX_ENTRIES + 1
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "body",
    [
        b'{"command":["a"],"env":{' + b",".join(b'"A%d":""' % n for n in range(MANY)) + b"}}",
        b'{"command":["a"],"env":{' + b'"A":"",' * MANY,
        b'{"command":[' + b'"",' * MANY + b'""]}',
        b'{"jobs":[' + b"{}," * MANY + b"{}]}",
        b'{"jobs":[{"labels":{' + b'"a":"",' * MANY + b'"b":""}}]}',
        b'{"jobs":[{"dependencies":[' + b"{}," * MANY + b"{}]}]}",
        b'{"jobs":[{"x":[' + b"[]" * MANY + b"]}]}",
        b'{"ids":[' + b'"1.5",' * MANY + b'"1"]}',
    ],
)
def test_too_many_entries_are_refused_before_they_are_decoded(body: bytes) -> None:
    """In one job or in a list of jobs, of equal keys, empty words and tables; whether or not the text goes on."""
    with pytest.raises(SpecError, match="entries"):
        check_entries(body)


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"jobs":[' * 100_000, b'{"a":' * (MAX_DEPTH + 1)])
def test_what_is_nested_too_deeply_is_refused_before_it_is_decoded(body: bytes) -> None:
    """A million brackets cost sixty-five of them."""
    with pytest.raises(SpecError, match="nested"):
        check_entries(body)


def test_signs_inside_of_text_are_no_entries() -> None:
    """A script of a million commas and brackets, with quotes and backslashes, is one value."""
    script = '[{,"\\' * 200_000
    assert check_entries(json.dumps({"script": script, "env": {"A": script}}).encode())


def test_text_that_the_body_breaks_off_in_is_read_once() -> None:
    """It ends the body, however many quotes are in it; nothing is looked at twice."""
    assert check_entries(b'{"a":"' + b'\\"' * 500_000)
    assert check_entries(b'{"a":"' + b'\\"' * 500_000 + b"\\")


@given(PLAIN)
def test_what_is_small_is_let_through(plain: object) -> None:
    """Any JSON of few values."""
    assert check_entries(msgspec.json.encode({"jobs": [plain], "other": plain}))


def test_a_large_list_of_jobs_is_read_as_a_small_one_is() -> None:
    """Half a megabyte of different jobs."""
    jobs = [{"command": ["true"], "name": f"job-{n}", "labels": {"n": str(n)}} for n in range(9_000)]
    specs = specs_of(json.dumps({"jobs": jobs}).encode())
    assert [spec.name for spec in specs[:2]] == ["job-0", "job-1"]
    assert len(specs) == 9_000
