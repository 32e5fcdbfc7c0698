"""The rights that the rows of the controller's table of endpoints are given: those of any daemon."""

from __future__ import annotations

from hal.rest.rights import ADMINS, EVERYBODY, NOBODY, OPERATORS, OWNERS, Reach, Right, Role, roles_with

__all__ = ["ADMINS", "EVERYBODY", "NOBODY", "OPERATORS", "OWNERS", "Reach", "Right", "Role", "roles_with"]
