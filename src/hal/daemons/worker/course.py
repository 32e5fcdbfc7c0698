"""Which of a session's brokers a worker dials. The processes that replace each other in one slot share it."""

from __future__ import annotations

import mmap
import struct
from typing import Final

from hal.daemons.worker.worker import DIAL_FOR_S
from hal.runtime.away_since import AwaySince
from hal.runtime.session_file import SessionFile, shards_of

DIAL_DURABLE_S: Final = 60.0
"""As clients do: the broker of a durable session is started again."""
DIAL_ALL_S: Final = 20.0
"""So long all brokers of a session that has several are dialled together."""
DIAL_EACH_S: Final = 3.0
"""And each of them at least."""
_FIELDS: Final = struct.Struct("<QQ?")


class Course:
    """The brokers of one session, from the one at which the worker begins.

    Args:
        task: of the job of the slots: they are dealt out one by one.
    """

    def __init__(self, session: SessionFile, task: int) -> None:
        self._shards = shards_of(session)
        self._away = AwaySince(session.id, session.away_s)
        self._memory = mmap.mmap(-1, _FIELDS.size)
        """Number of the broker, how many in a row did not answer, and whether the last one that did has ended."""
        self._write(task % len(self._shards), 0, over=False)

    @property
    def session(self) -> SessionFile:
        """Where to dial now."""
        return self._shards[self._read()[0]]

    @property
    def dial_s(self) -> float:
        """For how long."""
        if len(self._shards) == 1:
            return DIAL_DURABLE_S if self._shards[0].journal else DIAL_FOR_S
        return 0.0 if self.over else max(DIAL_ALL_S / len(self._shards), DIAL_EACH_S)

    @property
    def over(self) -> bool:
        """Whether the last broker that answered has said that it ends."""
        return self._read()[2]

    def arrive(self) -> None:
        """The broker answers."""
        self._away.end()
        self._write(self._read()[0], 0, over=False)

    def is_away_for_long(self) -> bool:
        """After the machines of all brokers did not answer: whether they have not for too long, at any worker here."""
        return self._away.is_long()

    def move(self, shard: int) -> None:
        """It has sent the worker to another one."""
        self._write(shard % len(self._shards), 0, over=False)

    def go_on(self, *, over: bool = False) -> bool:
        """Try the next one; False: all of them were tried, or there is no other one.

        Args:
            over: the broker has said that it ends.
        """
        shard, missed, before = self._read()
        self._write((shard + 1) % len(self._shards), missed + 1, over=over or before)
        return missed + 1 < len(self._shards)

    def _read(self) -> tuple[int, int, bool]:
        shard, missed, over = _FIELDS.unpack_from(self._memory)
        return shard, missed, over

    def _write(self, shard: int, missed: int, *, over: bool) -> None:
        _FIELDS.pack_into(self._memory, 0, shard, missed, over)
