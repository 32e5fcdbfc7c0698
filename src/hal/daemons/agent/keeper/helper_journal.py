"""Reading what a helper journalled: how far each of its steps came. The lines are described in `helper`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import Ended, Spawned, SpawnFailed
from hal.runtime.identity import ProcessIdentity
from hal.runtime.regular_files import open_regular
from hal.wire.frames import Usage

BLOCK_BYTES = 512
"""Unit of the block counts of getrusage."""
NO_SLOT = "-"


class SeenStep(NamedTuple):
    """What the journal says about one step."""

    slot: str = NO_SLOT
    """The cgroup it was to be spawned in."""
    spawned: Spawned | None = None
    end: Ended | SpawnFailed | None = None


class HelperJournal:
    """One helper's journal, as far as it has been read; read again, only what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = 0
        self.start_ticks = 0
        self.boot_id = ""
        self.recorder = ProcessIdentity(0, 0)
        """Who sees its steps end when it has died."""
        self.closed = False
        """Nothing more will be spawned by it."""
        self.steps: dict[StepId, SeenStep] = {}
        self._read = 0
        self._rest = b""

    def read(self) -> None:
        """Take in what was added; a last line without its end waits for it.

        Raises:
            NotRegularError: it is no file, so no helper's journal.
            OSError: it cannot be read.
        """
        fd = open_regular(self.path)
        with open(fd, "rb", buffering=0) as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.decode("utf-8", "surrogateescape").split(" ")
            try:
                self._take(words)
            except (ValueError, IndexError):
                continue  # torn by a full disk; what it said was written again after it

    def _take(self, words: list[str]) -> None:
        match words[0]:
            case "H":
                self.pid, self.start_ticks, self.boot_id = int(words[1]), int(words[2]), words[3]
                if len(words) > 6:
                    self.recorder = ProcessIdentity(int(words[5]), int(words[6]))
            case "I":
                step = step_of(words[1])
                self.steps[step] = SeenStep(slot=words[2])
                if len(words) > 3:
                    self._inherits(step, step_of(words[3]))
            case "P":
                step = step_of(words[1])
                mark = int(words[5]) if len(words) > 5 else 0
                spawned = Spawned(step, int(words[2]), int(words[3]), int(words[4]), mark)
                self.steps[step] = self.steps.get(step, SeenStep())._replace(spawned=spawned)
            case "F":
                step = step_of(words[2])
                failed = SpawnFailed(step, int(words[3]), " ".join(words[5:]), int(words[4]))
                self.steps[step] = self.steps.get(step, SeenStep())._replace(end=failed)
            case "U":
                self.steps.pop(step_of(words[1]), None)
            case "X":
                step = step_of(words[2])
                numbers = tuple(int(word) for word in words[5:10])
                ended = Ended(step, int(words[3]), usage_of(numbers), int(words[4]), leftover=words[10] != "0")
                self.steps[step] = self.steps.get(step, SeenStep())._replace(end=ended)
            case "C":
                self.closed = True

    def _inherits(self, heir: StepId, ended: StepId) -> None:
        """It has the place of that step, of whose end a rewritten journal may know nothing any more."""
        seen = self.steps.get(ended)
        if seen is not None and seen.end is not None:
            self.steps[ended] = seen._replace(end=replace(seen.end, heir=heir))


def step_of(key: str) -> StepId:
    """The inverse of `str(StepId)`."""
    job, task, attempt, rank = key.split(".")
    return StepId(int(job), int(task), int(attempt), int(rank))


def usage_of(numbers: tuple[int, ...]) -> Usage:
    """From user ms, system ms, maximum RSS in KiB, blocks in, blocks out (as getrusage has them)."""
    user_ms, system_ms, rss_kib, read_blocks, written_blocks = numbers
    return Usage(user_ms, system_ms, rss_kib << 10, read_blocks * BLOCK_BYTES, written_blocks * BLOCK_BYTES)
