"""docs/jobspec.md: its examples are jobs, and it describes every field that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from hal.core.model import (
    JobSpec,
    parse_constraint,
    parse_dependencies,
    parse_duration,
    plain_from_text,
    specs_from_text,
)
from hal.core.model import spec_schema as schema

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "jobspec.md").read_text()
EXAMPLES = re.findall(r"^```(toml|yaml|json)\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[text.split("\n")[0][:30] for _, text in EXAMPLES])
def test_an_example_of_the_document_is_a_job(kind: str, text: str) -> None:
    """The decoder takes it, and so does the schema."""
    assert specs_from_text(text, kind=kind)
    raw = plain_from_text(text, kind=kind)
    for one in raw.get("jobs", [raw]):
        jsonschema.validate(json.loads(json.dumps(one)), schema())


def test_every_field_is_described() -> None:
    """No field without a row in the table, and no row without a field."""
    table = TEXT.split("## Fields")[1].split("### ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(JobSpec.__struct_fields__)


def test_the_short_forms_in_the_tables_are_read() -> None:
    """Durations, dependencies and constraints as they stand in the document."""
    durations = TEXT.split("### Durations")[1].split("###")[0]
    rows = [
        row.partition(" | ")[0] for row in durations.splitlines() if row.startswith("| `") and "number" not in row[:30]
    ]
    written = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    assert len(written) == 14
    assert all(parse_duration(text) > 0 for text in written)
    dependencies = TEXT.split("### `dependencies`")[1].split("###")[0]
    for row in re.findall(r"^\| (`.+?`) \| ", dependencies, re.M):
        for text in re.findall(r"`([^`]+)`", row):
            assert parse_dependencies(text)[0].job in ("42", "")
    constraints = TEXT.split("### `constraints`")[1].split("## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| ", constraints, re.M)
    assert [str(parse_constraint(text.replace("\\|", "|")).op) for text in rows] == [
        "in",
        "in",
        "not-in",
        "exists",
        "absent",
    ]
