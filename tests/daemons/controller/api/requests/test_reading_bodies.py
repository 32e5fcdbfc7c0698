"""Bodies of requests: what is no JSON object is named; many equal jobs are one value; a mistake names its job."""

from __future__ import annotations

import json

import pytest

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.jobs import ControlBody
from hal.daemons.controller.api.requests import bodies
from hal.daemons.controller.api.requests.bodies import body_as, plain_json, specs_of
from hal.rest.body_entries import LARGE_BYTES, MAX_ENTRIES

JOB = {"command": ["true"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"null", "but null"),
        (b'"x"', "but a string"),
        (b"true", "but true or false"),
        (b"[]", "but an array"),
        (b"1", "but a number"),
    ],
)
def test_what_is_no_object_is_named(body: bytes, said: str) -> None:
    """An object is expected."""
    with pytest.raises(SpecError, match=said):
        plain_json(body)


def test_a_body_has_the_fields_of_its_type_and_no_others() -> None:
    """A field that is not known is a mistake, not ignored."""
    assert body_as(b'{"ids": ["1"]}', ControlBody) == ControlBody(ids=["1"])
    with pytest.raises(SpecError, match="idz"):
        body_as(b'{"idz": ["1"]}', ControlBody)


def test_a_large_body_with_too_many_entries_is_refused_before_it_is_decoded() -> None:
    """100,001 ids."""
    body = json.dumps({"ids": ["1"] * (MAX_ENTRIES + 1)}).encode()
    assert len(body) > LARGE_BYTES
    with pytest.raises(SpecError, match="more than 100000 entries"):
        body_as(body, ControlBody)


def test_one_job_or_a_list_of_jobs() -> None:
    """Both are lists of specs; equal texts are one value."""
    (one,) = specs_of(json.dumps(JOB).encode())
    first, second = specs_of(json.dumps({"jobs": [JOB, JOB]}).encode())
    assert first is second
    assert first == one


def test_a_mistake_in_a_list_names_the_job() -> None:
    """Counted from 1; a list of one needs no number."""
    with pytest.raises(SpecError, match=r"^job 2 of 2: "):
        specs_of(json.dumps({"jobs": [JOB, {"comand": []}]}).encode())
    with pytest.raises(SpecError) as caught:
        specs_of(json.dumps({"jobs": [{"comand": []}]}).encode())
    assert not caught.value.message.startswith("job 1 of 1")


def test_a_submission_has_a_most_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of 2, three are refused and two are read."""
    monkeypatch.setattr(bodies, "MAX_JOBS_IN_SUBMISSION", 2)
    assert len(specs_of(json.dumps({"jobs": [JOB] * 2}).encode())) == 2
    with pytest.raises(SpecError, match="3 jobs in one request; at most 2"):
        specs_of(json.dumps({"jobs": [JOB] * 3}).encode())
