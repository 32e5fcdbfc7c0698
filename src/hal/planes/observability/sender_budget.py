"""What one sender of telemetry may cost the collector: bytes, frames and records a second. Pure.

A budget never refuses: what has arrived is charged, and the debt is the time for which nothing more is read from that
sender. So it keeps what the collector does not take, in its own bounded queue, and loses what does not fit there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from hal.runtime.line_budget import Bucket
from hal.wire.frames.telemetry import MAX_LINES
from hal.wire.roles import Role

VALUES, LINES, SPANS = "values", "lines", "spans"
KINDS: Final = (VALUES, LINES, SPANS)
BUDGETS: Final[Mapping[str, tuple[int, float]]] = {
    VALUES: (20_000, 4_000.0),
    LINES: (MAX_LINES, 2_000.0),
    SPANS: (4_000, 1_000.0),
}
"""Of one sender: at once, and per second. A series that is defined counts as a value. A line takes the collector about
10 µs, a value 2 µs."""
BYTES: Final = 2 << 20
BYTES_PER_S: Final = float(1 << 20)
FRAME_BYTES: Final = 1_000
"""Charged for each frame beside its own bytes: small ones cost about the same."""
MAX_BUDGETS: Final = 20_000
"""Senders whose budgets are remembered; that of the one that was silent for longest is forgotten."""


class SenderBudget:
    """Of one name, over all its connections: who dials again begins with what is left."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: a clock that never goes back."""
        self._bytes = Bucket(now_ms, BYTES, BYTES_PER_S)
        self._records = {kind: Bucket(now_ms, *BUDGETS[kind]) for kind in KINDS}

    def charge_frame(self, size: int) -> None:
        """A frame and so many bytes of the connection have arrived."""
        self._bytes.charge(size + FRAME_BYTES)

    def charge(self, kind: str, count: int) -> None:
        """So many records of a kind have arrived, whatever becomes of them."""
        self._records[kind].charge(count)

    def wait_ms(self) -> int:
        """How long nothing more may be read; 0: it may at once."""
        return max(self._bytes.wait_ms(), *(bucket.wait_ms() for bucket in self._records.values()))


class SenderBudgets:
    """Of all senders."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._of: OrderedDict[tuple[Role, str], SenderBudget] = OrderedDict()

    def of(self, role: Role, name: str) -> SenderBudget:
        """That of a sender; a new one is full."""
        found = self._of.get((role, name))
        if found is None:
            found = self._of[role, name] = SenderBudget(self._now_ms)
            if len(self._of) > MAX_BUDGETS:
                self._of.popitem(last=False)
        self._of.move_to_end((role, name))
        return found
