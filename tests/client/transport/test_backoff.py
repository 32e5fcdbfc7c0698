"""How long a client waits between tries, and how long an answer may take, under a clock of the test's."""

from __future__ import annotations

import pytest

from hal.client.transport.backoff import Backoff, Turn
from hal.client.transport.pace import LEAST_BYTES_PER_S, Pace


def test_waits_double_up_to_a_second() -> None:
    """From a twentieth of it."""
    backoff = Backoff(limit_s=60.0)
    assert [backoff.failed(0.0) for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_try_at_the_limit_is_made() -> None:
    """2 s from 100 s on: a wait of 0.1 s from 101.9 s ends in time, from 101.95 s too late."""
    late, in_time = Backoff(limit_s=2.0), Backoff(limit_s=2.0)
    late.failed(100.0)
    in_time.failed(100.0)
    assert (in_time.failed(101.9), late.failed(101.95)) == (0.1, None)


def test_the_time_counts_from_the_first_failure() -> None:
    """Not from the beginning of the clock."""
    assert Backoff(limit_s=0.05).failed(1_000_000.0) == 0.05


def test_no_time_is_no_second_try() -> None:
    """A limit of nothing."""
    assert Backoff(limit_s=0.0).failed(5.0) is None


def test_what_worked_begins_a_new_series() -> None:
    """The shortest wait again, and the whole time."""
    backoff = Backoff(limit_s=1.0)
    backoff.failed(0.0)
    backoff.failed(0.5)
    backoff.worked()
    assert backoff.failed(100.0) == 0.05


@pytest.mark.parametrize(
    ("retry_after", "delay_s"),
    [
        ("7", 7.0),
        ("60", 60.0),
        ("0", 0.05),
        (None, 1.0),
        ("", 1.0),
        ("soon", 1.0),
        ("-1", 1.0),
        ("1.5", 1.0),
        ("٣", 1.0),
    ],
)
def test_a_client_waits_as_long_as_the_controller_says(retry_after: str | None, delay_s: float) -> None:
    """Whole seconds in ASCII digits; a second where it says nothing clear; never not at all."""
    assert Turn().refused(retry_after) == delay_s


def test_a_client_waits_a_minute_in_all() -> None:
    """40 s and 20 s are a minute; a second more is too long."""
    turn = Turn()
    assert [turn.refused(said) for said in ("40", "20", "1")] == [40.0, 20.0, None]


def test_a_wait_that_is_too_long_at_once_is_refused() -> None:
    """61 s."""
    assert Turn().refused("61") is None


def test_waits_of_nothing_come_to_an_end() -> None:
    """Each counts as a twentieth of a second: 1,200 are a minute."""
    turn = Turn()
    waits = 0
    while turn.refused("0") is not None and waits < 2_000:
        waits += 1
    assert abs(waits - 1_200) <= 1


def test_a_head_may_take_as_long_as_an_answer() -> None:
    """Begun at 10 s with 5 s of patience: at 12 s there are 3 s left."""
    assert Pace(10.0, 5.0).left_s(12.0) == 3.0


def test_bytes_of_a_head_earn_no_time() -> None:
    """A server that sends a header now and then keeps nobody waiting."""
    pace = Pace(10.0, 5.0)
    pace.came(1_000_000)
    assert pace.left_s(12.0) == 3.0


def test_a_body_has_its_own_time_and_more_for_each_byte() -> None:
    """Begun at 20 s, 32 KiB at 16 KiB a second: 5 s and 2 s, of which 1 s has passed."""
    assert LEAST_BYTES_PER_S == 16_384
    pace = Pace(10.0, 5.0)
    pace.head_is_read(20.0)
    pace.came(16_384)
    pace.came(16_384)
    assert pace.left_s(21.0) == 6.0
