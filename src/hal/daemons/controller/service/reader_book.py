"""The registered readers of the feeds as this controller knows them."""

from __future__ import annotations

from collections.abc import Iterable

from hal.store import ReaderRow


class ReaderBook:
    """The readers that there are, and where they stand."""

    def __init__(self) -> None:
        self.rows: dict[str, ReaderRow] = {}
        self.moved: set[str] = set()
        """Readers whose position is not stored yet."""

    def load(self, rows: Iterable[ReaderRow]) -> None:
        """Take over what is stored."""
        self.rows = {row.name: row for row in rows}
