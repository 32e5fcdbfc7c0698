"""Every unit that is read, and every form in which an amount or a duration is printed, with its number written out."""

from __future__ import annotations

import pytest

from hal.core.model import (
    Duration,
    SpecError,
    format_amount,
    format_duration,
    format_size,
    parse_amount,
    parse_attempt_id,
    parse_duration,
    parse_size,
    parse_task_ref,
)
from hal.core.model.ids import AttemptId, StepId
from hal.core.model.units import (
    MAX_AMOUNT,
    format_distinctly,
    is_size_unit,
    plural,
    readable_amount,
    resource_name,
)

MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("units", "size"),
    [
        ("B b", 1),
        ("k kB KB", 1_000),
        ("M MB m", 1_000_000),
        ("G GB", 1_000_000_000),
        ("T TB", 1_000_000_000_000),
        ("P PB", 1_000_000_000_000_000),
        ("Ki KiB ki", 1_024),
        ("Mi MiB", 1_048_576),
        ("Gi GiB", 1_073_741_824),
        ("Ti TiB", 1_099_511_627_776),
        ("Pi PiB", 1_125_899_906_842_624),
    ],
)
def test_each_unit_of_bytes_is_read(units: str, size: int) -> None:
    """With and without the B, in either case."""
    assert {parse_size(f"3{unit}") for unit in units.split()} == {3 * size}


@pytest.mark.parametrize(
    ("unit", "ms"),
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)],
)
def test_each_unit_of_time_is_read(unit: str, ms: int) -> None:
    """Alone, and with a fraction in front of another."""
    assert (parse_duration(f"2{unit}"), parse_duration(f"0.5{unit} 2ms" if ms > 1 else "2ms")) == (
        2 * ms,
        ms // 2 + 2,
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1d2h3m4s5ms", 93_784_005),
        ("1d 2h 3m 4s 5ms", 93_784_005),
        ("1-02:03:04", 93_784_000),
        ("02:03", 123_000),
        ("0:59:59", 3_599_000),
        ("25:00:00", 90_000_000),
        ("2.5s", 2_500),
        ("1w1d", 691_200_000),
    ],
)
def test_parts_of_a_duration_are_added(text: str, ms: int) -> None:
    """86,400 + 7,200 + 180 + 4 s and 5 ms."""
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["0:60", "0:00:60", "59:60:00", "1-00:60", "1-00:00:60"])
def test_sixty_minutes_are_an_hour_and_not_written_as_minutes(text: str) -> None:
    """Of a clock time."""
    with pytest.raises(SpecError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (1_000, "1s"),
        (60_000, "1m"),
        (5_400_000, "1h30m"),
        (93_784_005, "1d2h3m4s5ms"),
        (604_800_000, "7d"),
        (-1_500, "-1s500ms"),
    ],
)
def test_a_duration_is_printed_in_its_largest_units(ms: int, text: str) -> None:
    """Weeks are read, days are printed."""
    assert format_duration(ms) == text


def test_a_duration_shows_itself_as_people_write_it() -> None:
    """In a log or a debugger."""
    assert (str(Duration(5_400_000)), repr(Duration(5_400_000))) == ("1h30m", "Duration('1h30m')")


def test_the_longest_duration_is_allowed_and_one_more_is_not() -> None:
    """2^60 - 1 milliseconds."""
    assert parse_duration(f"{MAX_AMOUNT}ms") == MAX_AMOUNT == 2**60 - 1
    with pytest.raises(SpecError, match="is out of range"):
        parse_duration(f"{MAX_AMOUNT + 1}ms")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1_000, "1000B"),
        (1_024, "1KiB"),
        (1_536, "1.5KiB"),
        (1_280, "1.25KiB"),
        (1_025, "1025B"),
        (5 * MIB, "5MiB"),
        (3 * GIB // 2, "1.5GiB"),
        (2**40, "1TiB"),
        (2**50, "1PiB"),
        (100 * 2**50, "100PiB"),
        (-MIB, "-1MiB"),
    ],
)
def test_a_size_is_printed_in_the_largest_unit_that_is_exact(size: int, text: str) -> None:
    """To two decimals."""
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("memory", 1_953_125 * 1_024, "1.9GiB"),
        ("memory", 1_023, "1023B"),
        ("memory", 1_024, "1KiB"),
        ("disk", 1_536, "1.5KiB"),
        ("disk", 2**50, "1PiB"),
        ("memory", 1_075, "1KiB"),
        ("memory", 1_076, "1.1KiB"),
        ("memory", -3 * GIB // 2, "-1.5GiB"),
        ("cpu", 1_500, "1.5"),
        ("licence", 1_500, "1500"),
    ],
)
def test_an_amount_is_shown_to_people_to_one_decimal(name: str, amount: int, text: str) -> None:
    """1,075 bytes are 1.0498 KiB, 1,076 are 1.0508; what is not bytes is exact."""
    assert readable_amount(name, amount) == text


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (GIB, 2 * GIB, ("1GiB", "2GiB")),
        (GIB, GIB, ("1GiB", "1GiB")),
        (GIB, GIB + 1, ("1GiB", "1073741825B")),
    ],
)
def test_two_amounts_that_differ_never_read_alike(one: int, other: int, texts: tuple[str, str]) -> None:
    """Exact where the rounded ones would be the same."""
    assert format_distinctly("memory", one, other) == texts


@pytest.mark.parametrize(("count", "text"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1_000, "1,000 tasks")])
def test_one_of_a_thing_is_singular(count: int, text: str) -> None:
    """Thousands are separated."""
    assert plural(count, "task") == text


@pytest.mark.parametrize(
    ("text", "is_one"), [("GiB", True), (" mb ", True), ("", True), ("cpu", False), ("GiBx", False)]
)
def test_a_unit_of_bytes_is_known(text: str, is_one: bool) -> None:
    """In either case, with spaces around it."""
    assert is_size_unit(text) is is_one


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpus", "cpu"),
        ("cores", "cpu"),
        ("core", "cpu"),
        ("GPUs", "gpu"),
        (" mem ", "memory"),
        ("licence/a.b_c-1", "licence/a.b_c-1"),
        ("a" * 63, "a" * 63),
    ],
)
def test_a_resource_has_one_name(text: str, name: str) -> None:
    """Its other names are read as it."""
    assert resource_name(text) == name


@pytest.mark.parametrize("text", ["", "1cpu", "a" * 64, "a b", "a=b"])
def test_what_cannot_be_a_resource_is_refused(text: str) -> None:
    """A letter, then up to 62."""
    with pytest.raises(SpecError, match="is not a resource name"):
        resource_name(text)


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 1_000, "1"),
        ("gpu", 250, "0.25"),
        ("memory", 1_536, "1.5KiB"),
        ("licence", 10, "10"),
        ("cpu", 10_000, "10"),
    ],
)
def test_an_amount_is_printed_in_the_unit_of_its_resource(name: str, amount: int, text: str) -> None:
    """No zero of a whole number is lost."""
    assert format_amount(name, amount) == text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cpu", "-1", "cpu: '-1' is negative"),
        ("cpu", MAX_AMOUNT, "cpu: '1152921504606846975' is out of range"),
        ("cpu", "0.0001", "cpu: '0.0001' is finer than 1/1000 cpu"),
        ("licence", "0.5", "licence: '0.5' is finer than one licence"),
        ("licence", "1m", "licence: '1m' is not an amount of licence"),
        ("memory", "0.3B", "memory: '0.3B' is finer than bytes"),
        ("cpu", "4GiB", "cpu: '4GiB' is not an amount of cpu"),
        ("cpu", "1" * 65, f"cpu: '{'1' * 65}' is too long for a number"),
        ("cpu", None, "cpu: expected an amount like 4, got None"),
        ("cpu", True, "cpu: expected an amount like 4, got True"),
    ],
)
def test_an_amount_that_is_none_is_answered_with_why(name: str, value: object, message: str) -> None:
    """The field, what was written, what is wrong with it."""
    with pytest.raises(SpecError) as refused:
        parse_amount(name, value)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("name", "most"), [("cpu", (MAX_AMOUNT // 1_000) * 1_000), ("licence", MAX_AMOUNT), ("memory", MAX_AMOUNT)]
)
def test_the_greatest_amount_of_a_resource_is_allowed(name: str, most: int) -> None:
    """2^60 - 1 of the base unit."""
    assert parse_amount(name, format_amount(name, most)) == most


@pytest.mark.parametrize(
    ("name", "limit"), [("cpu", "1152921504606846 cpu"), ("licence", "1152921504606846976 licence")]
)
def test_beyond_the_greatest_amount_the_limit_is_named(name: str, limit: str) -> None:
    """In the unit that people write."""
    with pytest.raises(SpecError) as refused:
        parse_amount(name, 2**60)
    assert refused.value.hint == f"less than {limit}"


def test_the_limit_of_a_size_is_named_as_a_size() -> None:
    """2^60 bytes."""
    with pytest.raises(SpecError) as refused:
        parse_size(2**60)
    assert refused.value.hint == "less than 1024PiB"


def test_a_number_of_sixty_four_characters_is_read() -> None:
    """One more is too long."""
    assert parse_size("0" * 62 + "7B") == 7
    with pytest.raises(SpecError, match="is too long for a number"):
        parse_size("0" * 63 + "7B")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("42", (42, None)), ("42.0", (42, 0)), (" 42.7 ", (42, 7)), ("1", (1, None)), ("9" * 18, (10**18 - 1, None))],
)
def test_a_job_or_a_task_is_read_from_its_numbers(text: str, expected: tuple[int, int | None]) -> None:
    """Tasks count from 0, jobs from 1."""
    assert parse_task_ref(text) == expected


def test_a_step_names_its_attempt() -> None:
    """Job 42, task 7, attempt 1, on the attempt's third node."""
    step = StepId(42, 7, 1, 2)
    assert (str(step), str(step.attempt_id), step.attempt_id) == ("42.7.1.2", "42.7.1", AttemptId(42, 7, 1))


def test_an_attempt_reads_back() -> None:
    """Three numbers, in their order."""
    assert parse_attempt_id("42.7.1") == AttemptId(42, 7, 1)
