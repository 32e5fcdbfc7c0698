"""The JSON Schema of a job says yes to what the decoder accepts."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from hal.core.model import JobSpec, SpecError, spec_from_plain, spec_schema, to_plain
from tests.core.model.specs import job_specs
from tests.core.model.test_text import JSON
from tests.examples import examples


@cache
def validator() -> jsonschema.Draft202012Validator:
    """A validator of the schema, itself checked first."""
    schema = spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@given(job_specs())
@settings(max_examples=examples(50))
def test_the_schema_accepts_every_spec(spec: JobSpec) -> None:
    """In the form in which HAL prints it."""
    validator().validate(to_plain(spec))


@pytest.mark.parametrize(
    "fields",
    [
        {"array": 10},
        {"array": "0-9:2"},
        {"array": None},
        {"array": {"count": 3, "first": 1}},
        {"request": "4cpu,memory=1GiB"},
        {"request": {"cpu": 0.5, "memory": "1GiB"}},
        {"retries": 3},
        {"retries": {"max": 3, "backoff": 2.5}},
        {"dependencies": [42, "afterany:7", {"job": 3}, {"job": "prepare", "kind": "after"}]},
        {"constraints": ["gpu=a100", {"label": "ssd", "op": "exists"}]},
        {"env": {"A": 1, "B": 1.5, "C": True, "D": "x"}},
        {"walltime": 90},
        {"walltime": "1h"},
        {"signal": {"before": "1m"}},
        {"comment": "ä" * 200},
    ],
)
def test_the_schema_accepts_every_short_form(fields: dict[str, Any]) -> None:
    """Schema and decoder agree on what people may write."""
    raw = {"command": ["true"], **fields}
    spec_from_plain(raw)
    validator().validate(raw)


@pytest.mark.parametrize(
    "fields",
    [
        {"requst": {}},
        {"nodes": 0},
        {"nodes": "2"},
        {"priority": 10**9},
        {"array": 0},
        {"env": {"A": None}},
        {"labels": {"a": 1}},
        {"comment": "ä" * 201},
        {"comment": "a\n"},
        {"comment": "\x9b2J"},
        {"retries": -1},
        {"retries": {"mx": 1}},
        {"dependencies": [{"jop": "1"}]},
        {"hold": "yes"},
        {"on_node_lost": "explode"},
        {"request": {"cpu": -1}},
        {"command": "true"},
    ],
)
def test_the_schema_refuses_what_the_decoder_refuses(fields: dict[str, Any]) -> None:
    """An editor with the schema marks these before HAL sees them."""
    raw = {"command": ["true"], **fields}
    with pytest.raises(SpecError):
        spec_from_plain(raw)
    assert not validator().is_valid(raw)


def test_the_example_of_the_text_tests_is_valid() -> None:
    """The JSON form of the example."""
    import json

    validator().validate(json.loads(JSON))
