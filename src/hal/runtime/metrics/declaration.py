"""What a metric is, declared once: the registry, the reference page, dashboards and rules all follow from it.

Pure. Names follow Prometheus' conventions: `hal_`, base units, `_total` for counters
(https://prometheus.io/docs/practices/naming/).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from hal.core.model import InternalError

MAX_SERIES: Final = 2_000
"""Series of one metric: what its labels' bounds multiply to, but never more than this."""
MAX_LABEL_CHARS: Final = 128
"""Longest value of a label; what is longer is cut."""
OTHER: Final = "(other)"
"""Value of a label in series that are beyond a bound: their numbers are added up there."""
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class Kind(StrEnum):
    """Prometheus' types that HAL uses."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Label(Struct, frozen=True):
    """A dimension of a metric."""

    name: str
    text: str
    """What its values are."""
    most: int
    """Different values that are kept apart; further ones count under `OTHER`."""


class Metric(Struct, frozen=True, kw_only=True):
    """One metric."""

    name: str
    kind: Kind
    text: str
    """One sentence."""
    unit: str = ""
    """As in the name: `seconds`, `bytes`, `ratio`; empty for plain counts."""
    labels: tuple[Label, ...] = ()
    classic: tuple[int, int] = (-14, 6)
    """Of a histogram: its classic buckets end at the powers of two between 2^first and 2^last (0.06 ms and 64 s). They
    are sums of native buckets, so both say the same."""
    for_operators: bool = False
    """Not shown to the role user."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InternalError(f"'{self.name}' is not the name of a metric")
        if self.kind is Kind.COUNTER and not self.name.endswith("_total"):
            raise InternalError(f"{self.name}: a counter's name ends with _total")
        if self.unit and not self.name.removesuffix("_total").endswith(f"_{self.unit}"):
            raise InternalError(f"{self.name}: its name does not end with its unit, {self.unit}")

    @property
    def most(self) -> int:
        """Series at most."""
        product = 1
        for label in self.labels:
            product *= label.most + 1
        return min(product, MAX_SERIES)
