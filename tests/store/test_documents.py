"""docs/store.md and docs/events.md name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from hal.core.model import Event, EventKind
from hal.store import MAX_PAGE, Retention
from hal.store.schema import metadata

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_kind_of_event_is_described() -> None:
    """And no other; so is every field of an event."""
    text = (DOCS / "events.md").read_text()
    fields, kinds = text.split("## Kinds")
    assert set(re.findall(r"^\| `([\w-]+)` \|", kinds, re.M)) == {kind.value for kind in EventKind}
    assert set(re.findall(r"^\| `(\w+)` \|", fields, re.M)) == set(Event.__struct_fields__)


def test_every_table_is_described() -> None:
    """And no other."""
    tables = (DOCS / "store.md").read_text().split("## Tables")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`.+?`) \| ", tables, re.M)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(metadata.tables)


def test_the_bounds_in_the_document_are_those_of_the_code() -> None:
    """Retention and pages, as numbers for people."""
    text = " ".join((DOCS / "store.md").read_text().split())
    kept = Retention()
    assert f"events beyond {kept.events_ms // 86_400_000} days or {kept.events_count:,}" in text
    assert f"commit ids beyond the newest {kept.commits_count:,}" in text
    assert kept.idempotency_ms == 86_400_000
    assert f"at most {MAX_PAGE:,} rows" in text
