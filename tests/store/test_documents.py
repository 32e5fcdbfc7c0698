"""docs/store.md and docs/events.md name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from hal.core.model import Event, EventKind
from hal.daemons.controller.nodes.forgetting import MAX_FORGETS_A_NODE
from hal.store import DAY_MS, MAX_PAGE, Retention
from hal.store.removal import SWEPT_AT_ONCE, SWEPT_JOBS
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
    assert f"| events | {kept.events_ms // DAY_MS} days, or {kept.events_count:,} |" in text
    jobs = kept.jobs
    assert f"| outputs of a job | {jobs.outputs_ms // DAY_MS} days, or when its queue has more than " in text
    assert f"more than {jobs.outputs_count:,} tasks with outputs" in text
    assert (
        f"| its attempts, too | {jobs.attempts_ms // DAY_MS} days, or more than {jobs.attempts_count:,} tasks" in text
    )
    assert f"| the job | {jobs.jobs_ms // DAY_MS} days, or more than {jobs.jobs_count:,} ended jobs" in text
    assert f"commit ids (the newest {kept.commits_count:,})" in text
    assert f"at most {SWEPT_AT_ONCE} attempts and {SWEPT_JOBS} jobs at a time" in text
    assert f"at most {MAX_FORGETS_A_NODE:,} entries are kept for one node" in text
    assert kept.idempotency_ms == 86_400_000
    assert f"at most {MAX_PAGE:,} rows" in text
