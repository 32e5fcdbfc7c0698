"""The range of time that usage may be asked of."""

from __future__ import annotations

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from hal.daemons.collector.rows.history import MAX_MS
from hal.planes.observability.history.periods import Period, edges_of

DAY_MS = 86_400_000


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize("period", [Period.DAY, Period.WEEK, Period.MONTH])
def test_the_latest_instant_that_may_be_named_is_in_the_calendar(zone: str, period: Period) -> None:
    """Fourteen hours before UTC and twelve behind it."""
    edges = edges_of(MAX_MS - 100 * DAY_MS, MAX_MS, period, ZoneInfo(zone))
    assert (edges[0], edges[-1]) == (MAX_MS - 100 * DAY_MS, MAX_MS)
    assert all(before < after for before, after in pairwise(edges))
