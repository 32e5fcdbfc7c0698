"""`[observability]` of hal.toml: what the collector keeps, and for how long. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model.config_sections import Section


class ObservabilitySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability]`"""


OBSERVABILITY: Final = Section(
    name="observability",
    kind=ObservabilitySection,
    reader="observability",
    about="The collector (`hal up --with observability`).",
)
