"""Policies in files: alone, or inside a version as `hal policy show --json` and `-o yaml` print it."""

from __future__ import annotations

from typing import Any

from hal.client.rest.policy_views import PolicyInfo
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain


def policy_in(raw: Any) -> Policy:
    """Read the policy from a file's plain data.

    Raises:
        SpecError: naming the entry and field.
    """
    if isinstance(raw, dict) and "policy" in raw and raw.keys() <= set(PolicyInfo.__struct_fields__):
        raw = raw["policy"]
    return policy_from_plain(raw)
