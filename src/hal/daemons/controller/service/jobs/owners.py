"""Whose a job is: what rights are decided by."""

from __future__ import annotations

from typing import NamedTuple


class Owned(NamedTuple):
    """Whose a job is."""

    user: str
    account: str
    queue: str
