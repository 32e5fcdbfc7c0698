"""Graphs of jobs as pipelines have them: one that fetches, a row of jobs for each step, one that merges, a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

STEPS: Final = ("split", "align", "sort", "mark", "call", "filter", "phase", "annotate", "score", "plot")


def pipeline(width: int, steps: Sequence[str] = STEPS) -> list[dict[str, Any]]:
    """Specs of `width` times `steps` jobs and three more; the first is held, so that all wait."""
    found: list[dict[str, Any]] = [{"name": "fetch", "command": ["x"], "hold": True}]
    before = ""
    for step in steps:
        for number in range(width):
            needs = f"afterok:{before}-{number}" if before else "afterok:fetch"
            found.append({"name": f"{step}-{number}", "command": ["x"], "dependencies": [needs]})
        before = step
    merge = [f"afterok:{before}-{number}" for number in range(width)]
    found.append({"name": "merge", "command": ["x"], "dependencies": merge})
    found.append({"name": "report", "command": ["x"], "dependencies": ["afterok:merge"]})
    return found
