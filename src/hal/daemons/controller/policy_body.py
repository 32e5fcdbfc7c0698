"""The body of `PATCH /v1/policy`."""

from __future__ import annotations

from msgspec import Struct

from hal.core.model.policy_change import Operation


class PolicyOperations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations on one entry each; all are done, in order, or none."""

    operations: list[Operation]
