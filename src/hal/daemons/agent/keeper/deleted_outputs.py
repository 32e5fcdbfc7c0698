"""Which jobs' outputs the node's own bounds have deleted, when, and by which bound: for whoever asks for them.

An output in which nothing was written has no file either: without this, a deleted one would look empty. Kept in a file
beside their directory, the newest `MAX_REMEMBERED` jobs of it; steps can write there, so a damaged one is as if it had
fewer lines. A job that runs here again is told apart by whoever asks, from the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model.errors import one_line
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular

MAX_REMEMBERED: Final = 10_000
MAX_BOUND_CHARS: Final = 60
MAX_FILE_BYTES: Final = MAX_REMEMBERED * 120


class Deletion(NamedTuple):
    """That the outputs of a job were deleted."""

    at_ms: int
    bound: str
    """As hal.toml has it: `outputs_days = 180`."""


class DeletedOutputs:
    """Of one node."""

    def __init__(self, file: Path) -> None:
        """Args:
        file: read when something is first asked or added.
        """
        self._file = file
        self._by_job: dict[int, Deletion] | None = None
        """Those that were deleted last come last."""

    def add(self, jobs: Iterable[tuple[int, str]], at_ms: int) -> None:
        """Remember these jobs, each with the bound by which its outputs go now.

        Raises:
            OSError: the file cannot be written; they are remembered until this process ends.
        """
        known = self._known()
        for job, bound in jobs:
            known.pop(job, None)
            known[job] = Deletion(at_ms, bound)
        while len(known) > MAX_REMEMBERED:
            del known[next(iter(known))]
        write_private(self._file, "".join(f"{job} {one.at_ms} {one.bound}\n" for job, one in known.items()))

    def find(self, job: int) -> Deletion | None:
        """Return when the job's outputs were last deleted here; None: never, or too long ago to be remembered."""
        return self._known().get(job)

    def _known(self) -> dict[int, Deletion]:
        if self._by_job is None:
            text = b""
            with contextlib.suppress(OSError):  # there is none yet, or a step has put something else there
                text = read_regular(self._file, MAX_FILE_BYTES)
            self._by_job = dict(_parsed(text.decode("utf-8", "replace")))
        return self._by_job


def _parsed(text: str) -> Iterable[tuple[int, Deletion]]:
    for line in text.split("\n")[:MAX_REMEMBERED]:
        job, _, rest = line.partition(" ")
        at_ms, _, bound = rest.partition(" ")
        if all(one.isascii() and one.isdecimal() and len(one) < 16 for one in (job, at_ms)):
            yield int(job), Deletion(int(at_ms), one_line(bound, MAX_BOUND_CHARS))
