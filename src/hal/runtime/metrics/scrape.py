"""A scrape in slices: the loop turns between views and between some hundred lines."""

from __future__ import annotations

from typing import Final

from hal.runtime.interface import Logger, Runtime
from hal.runtime.metrics.declaration import Kind, Metric
from hal.runtime.metrics.exposition import wants_protobuf
from hal.runtime.metrics.protobuf import PROTOBUF, protobuf_of
from hal.runtime.metrics.registry import Registry
from hal.runtime.metrics.text import TEXT, text_of

LINES_A_SLICE: Final = 500
"""Lines of text that are made in one turn of the loop: a millisecond."""
SCRAPE: Final = Metric(
    name="hal_scrape_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="Time that a scrape of these metrics took, turns of others included; of earlier scrapes.",
    classic=(-12, 2),
)


async def scrape(runtime: Runtime, registry: Registry, *, accept: str = "", operator: bool = True) -> tuple[bytes, str]:
    """The metrics as they are now, and their media type.

    Args:
        registry: declares `SCRAPE`.
        accept: what the caller takes, as the header of that name says it.
        operator: False: without what only operators see.
    """
    began_ns = runtime.monotonic_ns()
    for name in registry.views:
        if fault := registry.look(name):
            _report(runtime.log, name, fault)
        await runtime.sleep(0)
    protobuf = wants_protobuf(accept)
    parts: list[bytes] = []
    left = LINES_A_SLICE
    for family in registry.families(operator=operator):
        made = protobuf_of((family,)) if protobuf else text_of((family,)).encode("utf-8", "backslashreplace")
        parts.append(made)
        left -= family.lines
        if left <= 0:
            left = LINES_A_SLICE
            await runtime.sleep(0)
    registry.histograms(SCRAPE).of().observe((runtime.monotonic_ns() - began_ns) / 1e9)
    return b"".join(parts), PROTOBUF if protobuf else TEXT


def _report(log: Logger, name: str, fault: str) -> None:
    log.warning("some metrics could not be read; the others are shown", view=name, reason=fault)
