"""How late an event loop is: a timer that notes by how much it comes after its time."""

from __future__ import annotations

from typing import Final

from hal.runtime.interface import Runtime
from hal.runtime.metrics.declaration import Kind, Metric
from hal.runtime.metrics.registry import Registry

LOOK_EVERY_MS: Final = 250
"""20 µs of CPU each time: a hundredth of a per cent of a core."""
LAG: Final = Metric(
    name="hal_event_loop_lag_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="How late a timer of this process's event loop came, looked at four times a second.",
)


async def watch_lag(runtime: Runtime, registry: Registry) -> None:
    """Look until cancelled, with a registry that declares `LAG`."""
    lag = registry.histograms(LAG).of()
    while True:
        due_ns = runtime.monotonic_ns() + LOOK_EVERY_MS * 1_000_000
        await runtime.sleep(LOOK_EVERY_MS)
        lag.observe((runtime.monotonic_ns() - due_ns) / 1e9)
