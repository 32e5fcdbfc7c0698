"""The answers that the controller's endpoints give: those of any daemon."""

from __future__ import annotations

from hal.rest.answers import VIEWS_A_SLICE, free, json_answer, page_cursor, sliced_answer

__all__ = ["VIEWS_A_SLICE", "free", "json_answer", "page_cursor", "sliced_answer"]
