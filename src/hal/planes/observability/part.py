"""What the collector knows of each of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Part(Protocol):
    """One of the things that the collector keeps: history, logs, samples, traces, alerts."""

    @property
    def name(self) -> str:
        """A word: of its database, in health, in logs."""

    async def run(self) -> None:
        """Do its work until it is cancelled.

        An exception that leaves it is logged and shown in the collector's health; the part is run again after a
        back-off, while the others go on. So whatever it holds in memory must be as its database has it when it begins.
        """

    def health(self) -> Mapping[str, float | int | str]:
        """Numbers and words by which it is judged: what was dropped, how far it lags, how much it keeps. Cheap: called
        whenever somebody asks."""

    async def close(self) -> None:
        """Let go of its database. Called once, after its last run was cancelled."""
