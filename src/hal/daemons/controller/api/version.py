"""The version of REST that is spoken here. Pure."""

from __future__ import annotations

from typing import Final

API_VERSION: Final = 1
