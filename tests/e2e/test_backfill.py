"""Who may pass whom on a real HAL, under each backfill of `hal.toml`: promises of the running controller hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal


@pytest.mark.parametrize(
    ("engine", "passes_the_second"),
    [
        ('backfill = "top-k"\nreservations = 2', False),
        pytest.param('backfill = "easy"', True, marks=pytest.mark.slow),
        pytest.param('backfill = "conservative"', False, marks=pytest.mark.slow),
    ],
)
def test_a_job_passes_those_that_are_promised_nothing(
    engine: str, passes_the_second: bool, own_hal: LiveHal, gate: Gate
) -> None:
    """Two of four cpus run for an hour; three cpus, then four, wait for an hour each.

    Three hours on one cpu fit beside the first of those and not before the second; half an hour passes both. When the
    running job ends early, the first goes at once and the second after it.
    """
    (own_hal.root / "hal.toml").write_text(f"[engine]\n{engine}\n")
    own_hal.up("--cpus", "4", "--memory", "1GiB")
    with own_hal.client() as client:

        def job(cpus: int, walltime: str, **more: Any) -> dict[str, Any]:
            return {"command": gate.command(), "request": {"cpu": cpus}, "walltime": walltime, **more}

        running = client.submit(job(2, "1h"))
        gate.started()
        first, second, long, short = (
            client.submit(one) for one in (job(3, "1h"), job(4, "1h"), job(1, "3h"), job(1, "30m"))
        )
        began = {gate.started().partition(".")[0] for _ in range(1 + passes_the_second)}
        assert began == {short.id, *([long.id] if passes_the_second else [])}
        shown = first.why()
        assert (shown.reason, shown.basis) == ("resources", "reservation")
        assert shown.starts_at_ms == running.task().attempts[0].allocated_ms + 3_600_000
        if not passes_the_second:
            after = second.why().starts_at_ms
            assert after is not None
            assert (after, long.why().reason) == (shown.starts_at_ms + 3_600_000, "priority")
        gate.open(1 + len(began))
        client.wait_all([running, short, *([long] if passes_the_second else [])], DEADLINE_S)
        order = []
        for _ in range(3 - passes_the_second):
            order.append(gate.started().partition(".")[0])
            gate.open()
        assert order[0] == first.id
        assert {*order} == {first.id, second.id, *([] if passes_the_second else [long.id])}
        ends = client.wait_all([first, second, long], DEADLINE_S)
        assert {info.state for info in ends} == {"succeeded"}
