"""Read a helper's journal: the progress of each of its steps. `helper_process.journal` describes the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hal.core.model import StepId
from hal.core.model.cpu_lists import MAX_CPUS
from hal.daemons.agent.keeper.ports import Ended, Spawned, SpawnFailed
from hal.runtime.identity import ProcessIdentity
from hal.runtime.regular_files import open_regular
from hal.wire.bounds import MAX_COUNT
from hal.wire.frames.agent_keeper import Usage

BLOCK_BYTES: Final = 512
"""Unit of the block counts of getrusage."""
NO_SLOT: Final = "-"
MAX_JOURNAL_BYTES: Final = 16 << 20
"""Largest part of a journal that is read; a helper rewrites its own long before."""
PIECE_BYTES: Final = 32 << 10
"""Part that is read at once while others wait: about 400 lines."""
MAX_PID: Final = (1 << 22) - 1
"""The kernel's own limit."""
MAX_MARK: Final = 1 << 62
STATUSES: Final = range(-64, 256)
"""Exit codes, and signals as negative numbers."""


class SeenStep(NamedTuple):
    """What the journal contains about one step."""

    slot: str = NO_SLOT
    """The cgroup in which it was to be spawned."""
    outputs: tuple[int, ...] = ()
    """Numbers of its outputs' files, stdout's first; a later step may have got them since."""
    cpus: tuple[int, ...] = ()
    """On which it was begun; (): on all."""
    spawned: Spawned | None = None
    end: Ended | SpawnFailed | None = None


class HelperJournal:
    """One helper's journal, as far as it has been read; a further read returns only what was added.

    Steps can write to it too: a line with numbers that no helper writes is ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = 0
        self.start_ticks = 0
        self.boot_id = ""
        self.recorder = ProcessIdentity(0, 0)
        """The process that sees its steps end after the helper has died."""
        self.uid = -1
        """Of the user whom it serves; -1: whoever its keeper was."""
        self.closed = False
        """The helper will spawn nothing more."""
        self.steps: dict[StepId, SeenStep] = {}
        self._users: dict[int, StepId] = {}
        """Who got the file of that number last."""
        self._read = 0
        self._rest = b""

    def read(self) -> None:
        """Read what was added; a last line without its end is left for later.

        Raises:
            NotRegularError: it is not a file, so not a helper's journal.
            OSError: it cannot be read.
        """
        self._read_some(MAX_JOURNAL_BYTES)

    def read_piece(self) -> bool:
        """As `read`, a few milliseconds' worth; returns whether more follows. Raises the same errors."""
        return self._read_some(PIECE_BYTES) == PIECE_BYTES

    def _read_some(self, most: int) -> int:
        """Read at most so many bytes; returns how many there were."""
        fd = open_regular(self.path)
        with open(fd, "rb", buffering=0) as file:
            file.seek(self._read)
            data = file.read(min(most, MAX_JOURNAL_BYTES - self._read))
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.decode("utf-8", "surrogateescape").split(" ")
            try:
                self._take(words)
            except (ValueError, IndexError):
                continue  # torn by a full disk and written again afterwards; or not a helper's line
        return len(data)

    def output_names(self, step: StepId) -> list[str]:
        """The names of the files of stdout and stderr of a step before they got any other; '' if it has it no more."""
        numbers = self.steps.get(step, SeenStep()).outputs
        stem = self.path.stem
        return [f"{stem}.{number}" if self._users.get(number) == step else "" for number in numbers]

    def writers(self) -> tuple[ProcessIdentity, ProcessIdentity]:
        """The helper and its recorder; pid 0: there is none."""
        return ProcessIdentity(self.pid, self.start_ticks), self.recorder

    def read_what_is_there(self) -> bool:
        """As `read`; returns whether it is still the journal that was begun there: a step may have removed or
        replaced it."""
        try:
            self.read()
        except OSError:
            return False
        return self.pid > 0

    def _take(self, words: list[str]) -> None:
        """Raises:
        ValueError, IndexError: no helper writes that.
        """
        match words[0]:
            case "H":
                self.pid, self.start_ticks, self.boot_id = _count(words[1], MAX_PID), _count(words[2]), words[3]
                if len(words) > 6:
                    self.recorder = ProcessIdentity(_count(words[5], MAX_PID), _count(words[6]))
                if len(words) > 7:
                    self.uid = int(words[7])
            case "I":
                step = _step(words[1])
                self.steps[step] = SeenStep(slot=words[2])
                if len(words) > 3:
                    self._inherits(step, _step(words[3]))
            case "O":
                step = _step(words[1])
                numbers = tuple(_count(word) for word in words[2:4])
                self.steps[step] = self.steps.get(step, SeenStep())._replace(outputs=numbers)
                self._users.update(dict.fromkeys(numbers, step))
            case "B":
                step = _step(words[1])
                cpus = tuple(_count(word, MAX_CPUS - 1) for word in words[2].split(",", MAX_CPUS)[:MAX_CPUS])
                self.steps[step] = self.steps.get(step, SeenStep())._replace(cpus=cpus)
            case "P":
                step = _step(words[1])
                mark = _count(words[5], MAX_MARK) if len(words) > 5 else 0
                spawned = Spawned(step, _count(words[2], MAX_PID), _count(words[3]), _count(words[4]), mark)
                self.steps[step] = self.steps.get(step, SeenStep())._replace(spawned=spawned)
            case "F":
                step = _step(words[2])
                failed = SpawnFailed(step, _status(words[3]), " ".join(words[5:]), _count(words[4]))
                self.steps[step] = self.steps.get(step, SeenStep())._replace(end=failed)
            case "U":
                self.steps.pop(_step(words[1]), None)
            case "X":
                step = _step(words[2])
                usage = usage_of(tuple(_count(word, MAX_COUNT >> 10) for word in words[5:10]))
                ended = Ended(step, _status(words[3]), usage, _count(words[4]), leftover=words[10] != "0")
                self.steps[step] = self.steps.get(step, SeenStep())._replace(end=ended)
            case "C":
                self.closed = True

    def _inherits(self, heir: StepId, ended: StepId) -> None:
        """Record that it inherits the slot of a step, whose end a rewritten journal may no longer contain."""
        seen = self.steps.get(ended)
        if seen is not None and seen.end is not None:
            self.steps[ended] = seen._replace(end=replace(seen.end, heir=heir))


def step_of(key: str) -> StepId:
    """Parse the inverse of `str(StepId)`, with which the key was created."""
    job, task, attempt, rank = key.split(".")
    return StepId(int(job), int(task), int(attempt), int(rank))


def _step(word: str) -> StepId:
    return msgspec.convert(tuple(map(int, word.split("."))), StepId)


def _count(word: str, most: int = MAX_COUNT) -> int:
    number = int(word)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not between 0 and {most}")
    return number


def _status(word: str) -> int:
    number = int(word)
    if number not in STATUSES:
        raise ValueError(f"{number} is no exit code or signal")
    return number


def usage_of(numbers: tuple[int, ...]) -> Usage:
    """Convert user ms, system ms, maximum RSS in KiB, blocks in, blocks out (as getrusage has them)."""
    user_ms, system_ms, rss_kib, read_blocks, written_blocks = numbers
    return Usage(user_ms, system_ms, rss_kib << 10, read_blocks * BLOCK_BYTES, written_blocks * BLOCK_BYTES)
