"""Durations, sizes and amounts: exact both ways, and nothing else is read as one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model import (
    Duration,
    Resources,
    SpecError,
    format_amount,
    format_duration,
    format_size,
    parse_amount,
    parse_attempt_id,
    parse_duration,
    parse_size,
    parse_task_ref,
    shown,
)
from hal.core.model.units import MAX_AMOUNT, UNLIMITED, format_wait, limit_ms
from tests.core.model.specs import amounts, durations, resource_names, resources


@given(durations)
def test_safety_a_printed_duration_reads_back_as_itself(duration: Duration) -> None:
    """parse(print(x)) == x for every duration."""
    assert parse_duration(format_duration(duration)) == duration
    assert parse_duration(str(duration)) == duration


@given(amounts)
def test_safety_a_printed_size_reads_back_as_itself(amount: int) -> None:
    """parse(print(x)) == x for every number of bytes."""
    assert parse_size(format_size(amount)) == amount


@given(resource_names, amounts)
def test_safety_a_printed_amount_reads_back_as_itself(name: str, amount: int) -> None:
    """parse(print(x)) == x for every amount of every resource."""
    assert parse_amount(name, format_amount(name, amount)) == amount


@given(resources)
def test_safety_printed_resources_read_back_as_themselves(value: Resources) -> None:
    """Both forms, the table and the text, are exact."""
    assert Resources.parse(value.plain()) == value
    assert Resources.parse(str(value)) == value


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90m", 90 * 60_000),
        ("1d2h", 26 * 3_600_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("1w", 7 * 86_400_000),
        ("02:30:00", 9_000_000),
        ("2:30", 150_000),
        ("90:00", 5_400_000),
        ("1-12", 36 * 3_600_000),
        ("1-12:30", 36 * 3_600_000 + 1_800_000),
        ("2 hours", 7_200_000),
        ("90min", 5_400_000),
        ("1day 2hrs", 26 * 3_600_000),
        ("1-12:00:00", 36 * 3_600_000),
        ("1D 2H", 26 * 3_600_000),
        (" 30s ", 30_000),
        ("0.001s", 1),
        ("unlimited", MAX_AMOUNT),
        ("INFINITE", MAX_AMOUNT),
        (90, 90_000),
        (0.25, 250),
        (1e3, 1_000_000),
        (0, 0),
        ("0", 0),
    ],
)
def test_a_duration_is_read_in_every_form_that_the_documents_name(text: object, ms: int) -> None:
    """Numbers are seconds; clock times are those of Slurm: MM:SS, HH:MM:SS, and days in front of hours."""
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "1x",
        "-5m",
        -1,
        "1h-5m",
        "1.5.5h",
        "m",
        "1:60:00",
        "1:2:3:4",
        "1:30pm",
        "nan",
        "inf",
        "1_000",
        "1e999999999",
        "９m",
        "٣m",
        "9" * 5_000 + ":00",
        "9" * 5_000,
        10**5_000,
        math.nan,
        math.inf,
        -math.inf,
        True,
        None,
        [],
        {},
        b"5m",
        "0.0001s",
        0.0001,
        1e-9,
        "1." + "0" * 40 + "1s",
        MAX_AMOUNT + 1,
        f"{MAX_AMOUNT + 1}ms",
    ],
    ids=shown,
)
def test_what_is_not_a_duration_is_refused_with_the_field_named(text: object) -> None:
    """No float rounding, no digits of other scripts, no negative, no endless number; the error stays short."""
    with pytest.raises(SpecError) as refused:
        parse_duration(text, field="walltime")
    assert refused.value.message.startswith("walltime: ")
    assert len(refused.value.message) < 250


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1.5GiB", 3 << 29),
        ("512M", 512_000_000),
        ("4GB", 4_000_000_000),
        ("1ki", 1024),
        (" 2 MiB ", 2 << 20),
        ("100b", 100),
        (4096, 4096),
        (1e16, 10**16),
        (2.0, 2),
        ("1.9GiB", 2_040_109_466),
        ("0", 0),
        ("1E", None),
        ("1e", None),
    ],
)
def test_a_size_is_decimal_or_binary_as_its_unit_says(text: object, size: int | None) -> None:
    """M is a million, Mi is 2**20; an unknown unit is refused."""
    if size is None:
        with pytest.raises(SpecError, match="is not a size"):
            parse_size(text)
    else:
        assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30", "did you mean 30s or 30m?"),
        ("1.5", "did you mean 1.5s or 1.5m?"),
        (" 1e3 ", "did you mean 1000s or 1000m?"),
    ],
)
def test_text_without_a_unit_is_no_duration_and_both_readings_are_named(text: str, hint: str) -> None:
    """30 are seconds to some schedulers and minutes to others; zero is the same to all."""
    with pytest.raises(SpecError) as refused:
        parse_duration(text, field="walltime")
    assert (refused.value.message, refused.value.hint) == (f"walltime: '{text.strip()}' has no unit", hint)


@pytest.mark.parametrize(
    ("text", "hint"), [("500", "did you mean 500MiB or 500B?"), ("1.5", "did you mean 1.5MiB or 1.5GiB?")]
)
def test_text_without_a_unit_is_no_size_and_both_readings_are_named(text: str, hint: str) -> None:
    """Slurm's 500 are MiB, HAL's number 500 is bytes; there is no half a byte."""
    with pytest.raises(SpecError) as refused:
        Resources.parse({"memory": text})
    assert (refused.value.message, refused.value.hint) == (f"request.memory: '{text}' has no unit", hint)


@pytest.mark.parametrize(
    ("walltime", "ms"), [(None, None), (UNLIMITED, None), (Duration(60_000), 60_000)], ids=["none", "unlimited", "1m"]
)
def test_an_unlimited_walltime_is_no_limit(walltime: Duration | None, ms: int | None) -> None:
    """As if there were none, but for what the queue gives to jobs that name none."""
    assert limit_ms(walltime) == ms


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", 4, 4_000),
        ("cpu", "4cpu", 4_000),
        ("cpu", "4 cores", 4_000),
        ("cpu", "500m", 500),
        ("cpu", 0.5, 500),
        ("cpu", 0.1, 100),
        ("gpu", "2gpus", 2_000),
        ("gpu", "0.25", 250),
        ("memory", "1.5GiB", 3 << 29),
        ("licence", 3, 3),
        ("licence", "3licence", 3),
        ("licence", 3.0, 3),
    ],
)
def test_an_amount_is_read_in_the_resources_own_unit(name: str, text: object, amount: int) -> None:
    """cpu and gpu in thousandths, memory in bytes, anything else in whole units."""
    assert parse_amount(name, text) == amount


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu", 0.1234567),
        ("cpu", "0.0001"),
        ("cpu", -1),
        ("cpu", "-1"),
        ("cpu", "4GiB"),
        ("cpu", True),
        ("cpu", None),
        ("cpu", math.nan),
        ("cpu", math.inf),
        ("cpu", "٤"),
        ("cpu", 10**400),
        ("cpu", MAX_AMOUNT),
        ("memory", "0.3B"),
        ("memory", "1.00000000000000000000000000000000001GiB"),
        ("memory", "-1GiB"),
        ("memory", "many"),
        ("memory", 1e300),
        ("licence", 0.5),
        ("licence", "3cpu"),
        ("licence", "1m"),
        ("licence", MAX_AMOUNT + 1),
    ],
    ids=shown,
)
def test_an_amount_too_fine_too_large_or_of_something_else_is_refused(name: str, text: object) -> None:
    """The error names the resource."""
    with pytest.raises(SpecError, match=f"^{name}: "):
        parse_amount(name, text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"cpus": 1, "cpu": 2}, "'cpu' is given twice"),
        ("cpu=1,cores=2", "'cpu' is given twice"),
        ("2GiB", "does not name a resource"),
        ("cpu", "is not NAME=AMOUNT"),
        ("cpu=", "is not an amount"),
        ("=4", "is not a resource name"),
        ({1: 2}, "'1' is not a resource name"),
        ({"CPU!": 2}, "is not a resource name"),
        ({"a" * 64: 2}, "is not a resource name"),
        ({"": 2}, "is not a resource name"),
        ([1], "expected a table"),
        (4, "expected a table"),
        (None, "expected a table"),
        ({f"r{n}": 1 for n in range(65)}, "at most 64"),
    ],
)
def test_malformed_resources_are_refused(value: object, message: str) -> None:
    """A unit alone does not name a resource; a resource counts once under all its names."""
    with pytest.raises(SpecError, match=message):
        Resources.parse(value)


def test_resources_drop_zeros_and_keep_no_order() -> None:
    """Equal sets are equal values with equal hashes."""
    assert Resources.parse("gpu=0,cpu=2,memory=1GiB") == Resources.parse({"memory": "1GiB", "cpu": "2000m"})
    assert hash(Resources.parse("cpu=2,memory=1GiB")) == hash(Resources.parse("memory=1GiB,2cpu"))


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "42.", "42.7.1", "4 2", "٤٢", "42.-1", "9" * 30, "4²"])
def test_what_is_not_a_task_reference_is_refused(text: str) -> None:
    """Only ASCII digits, at most one dot; jobs count from 1."""
    with pytest.raises(SpecError, match="is not a job or task"):
        parse_task_ref(text)


@given(st.integers(1, 10**17), st.none() | st.integers(0, 10**8))
def test_a_task_reference_reads_back(job: int, task: int | None) -> None:
    """`42` is a job, `42.7` its task 7."""
    assert parse_task_ref(str(job) if task is None else f"{job}.{task}") == (job, task)


@pytest.mark.parametrize("text", ["", "1.2", "1.2.3.4", "1.².3", "1.-2.3", "a.b.c", "1.2." + "9" * 5_000], ids=shown)
def test_what_is_not_an_attempt_is_refused(text: str) -> None:
    """Three plain numbers with dots between them."""
    with pytest.raises(SpecError, match="is not an attempt"):
        parse_attempt_id(text)


@pytest.mark.parametrize(
    ("ms", "text"), [(250, "250ms"), (59_999, "59s999ms"), (60_000, "1m"), (3_599_387, "59m59s"), (86_400_001, "1d")]
)
def test_a_wait_is_told_in_whole_seconds_from_a_minute_on(ms: int, text: str) -> None:
    """Milliseconds are told where they matter."""
    assert format_wait(ms) == text
