"""The collector's parts together: each runs by itself, and what fails is run again while the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from hal.core.model import HALError, StoreError
from hal.core.model.observability_config import ObservabilitySection
from hal.daemons.collector.account_tree import AccountTree
from hal.daemons.collector.delegated_accounts import DelegatedAccounts
from hal.daemons.collector.reception import Reception
from hal.daemons.collector.warnings import NOTED_EVERY_MS, Losses, Warned, summary_of, warnings_of
from hal.planes.observability.alerts.part import AlertsPart
from hal.planes.observability.history.part import History
from hal.planes.observability.logs.part import LogsPart
from hal.planes.observability.part import Part
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.traces.part import TracesPart
from hal.rest.controller_client import ControllerClient
from hal.runtime.interface import Runtime

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 60_000
SETTLED_MS: Final = 5_000
"""A part that has failed works again once it has run for so long."""
DIRECTORY: Final = "observability"
"""Of its databases, below HAL_HOME."""


class PartHealth(Struct, frozen=True, kw_only=True):
    """How one part is."""

    works: bool
    failure: str = ""
    """What made it fail last, while it does not work; for operators alone."""
    values: Mapping[str, float | int | str]


class Collector:
    """What REST handlers ask. A part that others ask by name is an attribute."""

    def __init__(self, runtime: Runtime, section: ObservabilitySection, reception: Reception | None = None) -> None:
        """
        Args:
            section: of hal.toml.
            reception: takes what agents and others send.
        """
        self.runtime, self.section = runtime, section
        self.directory = runtime.paths.root / DIRECTORY
        """Of the parts' databases."""
        self.history: History | None = None
        self.alerts: AlertsPart | None = None
        self.logs: LogsPart | None = None
        self.traces: TracesPart | None = None
        self.samples: Samples | None = None
        self.controller: ControllerClient | None = None
        """Answers as to an operator."""
        self.delegated: DelegatedAccounts | None = None
        self.accounts: AccountTree | None = None
        self.reception = reception or Reception(runtime)
        """What agents and others send: `reception.received("lines", callback)`."""
        self.parts: tuple[Part, ...] = ()
        """In the order in which they are shown; complete before `start`."""
        self.unserved = ""
        """Why its REST is not served on the network, where it is to be."""
        self._losses = Losses()
        self._failures: dict[str, str] = {}
        """Of the parts that do not work: why."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Run all parts in the background.

        Raises:
            StoreError: the directory of their databases cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.directory} cannot be made: {error.strerror or error}") from error
        self._tasks = [self.runtime.spawn_task(self._keep(part), f"part {part.name}") for part in self.parts]
        self._tasks.append(self.runtime.spawn_task(self._note_losses(), "losses"))

    async def stop(self) -> None:
        """Cancel the parts, and close what they have open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for part, ended in zip(
            self.parts,
            await asyncio.gather(*(part.close() for part in self.parts), return_exceptions=True),
            strict=True,
        ):
            if isinstance(ended, Exception):
                self.runtime.log.warning("a part could not be closed", part=part.name, reason=str(ended))

    def health(self) -> dict[str, PartHealth]:
        """Of each part, by name."""
        return {
            part.name: PartHealth(
                works=part.name not in self._failures,
                failure=self._failures.get(part.name, ""),
                values=part.health(),
            )
            for part in self.parts
        }

    def note_unserved(self, why: str) -> None:
        """Its REST cannot be served on the network: operators are warned."""
        self.unserved = why

    def summary(self) -> str:
        """One line about all of it."""
        return summary_of({part.name: part.health() for part in self.parts}, self.runtime.now_ms())

    def warnings(self, *, for_operators: bool) -> list[Warned]:
        """What was dropped within an hour, how far it is behind, which parts do not work.

        Args:
            for_operators: with the reasons of failures, which may name files of the site.
        """
        failures = self._failures if for_operators else dict.fromkeys(self._failures, "")
        values = {part.name: part.health() for part in self.parts}
        found = warnings_of(values, failures, self._losses, self.runtime.now_ms())
        if self.unserved:
            why = f": {self.unserved}" if for_operators else ""
            do = "mend it, and end the collector's process: it is started again"
            found.insert(0, Warned(what=f"its REST is not served on the network{why}", do=do))
        return found

    async def _note_losses(self) -> None:
        while True:
            self._losses.note(self.runtime.now_ms(), {part.name: part.health() for part in self.parts})
            await self.runtime.sleep(NOTED_EVERY_MS)

    async def _keep(self, part: Part) -> None:
        """Run a part again whenever it fails, each time after a longer pause; one that ran for a while begins anew."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            began_ms = self.runtime.monotonic_ms()
            works = self.runtime.call_later(SETTLED_MS, lambda: self._failures.pop(part.name, None))
            try:
                await part.run()
                failure = "it ended"
            except Exception as error:
                failure = error.message if isinstance(error, HALError) else f"{type(error).__name__}: {error}"
                self.runtime.log.exception("a part of the collector failed", part=part.name)
            finally:
                works.cancel()
            self._failures[part.name] = failure
            if self.runtime.monotonic_ms() - began_ms > LONGEST_PAUSE_MS:
                pause_ms = FIRST_PAUSE_MS
            await self.runtime.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
