"""Times and amounts as tables show them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from hal.cli.kit import formats
from hal.cli.kit.exit_codes import of_error
from hal.cli.kit.input_files import format_of, settings_of
from hal.cli.kit.pairs import pairs
from hal.core.model import SpecError


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "0.0s"),
        (440, "0.4s"),
        (9_999, "9.9s"),
        (10_000, "0:10"),
        (129_000, "2:09"),
        (3_599_999, "59:59"),
        (3_600_000, "1:00:00"),
        (11_107_000, "3:05:07"),
        (172_799_000, "47:59:59"),
        (172_800_000, "2d0h"),
        (266_400_000, "3d2h"),
    ],
)
def test_a_span_is_short_enough_for_a_column(ms: int | None, text: str) -> None:
    """Tenths below ten seconds, days from two days on."""
    assert formats.span(ms) == text


@pytest.mark.usefixtures("utc")
def test_an_instant_is_local_time_with_its_zone() -> None:
    """Nothing where it has not happened."""
    assert formats.instant(1_700_000_000_999) == "2023-11-14 22:13:20 UTC"
    assert (formats.instant(None), formats.instant(0)) == ("", "")


def test_limits_and_amounts() -> None:
    """None is written out; amounts by name."""
    assert (formats.limit(5_400_000), formats.limit(None)) == ("1h30m", "unlimited")
    assert formats.amounts({"cpu": 1500, "memory": 8 << 30}) == "cpu 1.5, memory 8GiB"


def test_what_is_used_of_what_a_node_has() -> None:
    """Of 4 cores 3 are free; what is not said to be free is free; a node without it has no figure."""
    capacity = {"cpu": 4000, "memory": 2 << 30}
    assert formats.used(capacity, {"cpu": 3000}, "cpu") == "1/4"
    assert formats.used(capacity, {"cpu": 4000}, "cpu") == "0/4"
    assert formats.used(capacity, {}, "memory") == "0/2GiB"
    assert formats.used(capacity, {}, "gpu") == "-"
    assert formats.resources_of([{"cpu": 1, "tape": 2}, {"gpu": 1, "arm": 1}]) == ["arm", "tape"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("invalid-spec", 2),
        ("invalid-request", 2),
        ("too-large", 2),
        ("not-found", 3),
        ("denied", 4),
        ("unauthorized", 4),
        ("unreachable", 5),
        ("no-leader", 5),
        ("broke-off", 5),
        ("ending", 5),
        ("conflict", 6),
        ("overloaded", 7),
        ("too-many", 7),
        ("store", 7),
        ("timed-out", 124),
        ("anything else", 1),
    ],
)
def test_every_error_has_its_exit_code(code: str, exit_code: int) -> None:
    """As docs/cli.md has them."""
    assert of_error(code) == exit_code


def test_pairs_are_separated_by_commas_and_named_once() -> None:
    """A value may hold another `=`."""
    import click

    assert pairs("--label", ["a=1, b=2", "c=x=y"]) == {"a": "1", "b": "2", "c": "x=y"}
    for wrong, text in (
        (["a"], "'a' is not NAME=VALUE"),
        (["=1"], "'=1' is not"),
        (["a=1", "a=2"], "'a' is given twice"),
    ):
        with pytest.raises(click.UsageError, match=text):
            pairs("--label", wrong)


@pytest.mark.parametrize(
    ("name", "text", "given", "kind"),
    [
        ("a.toml", "", None, "toml"),
        ("a.YML", "", None, "yaml"),
        ("a.json", "", "toml", "toml"),
        ("a.sh", "#!/bin/sh\n", None, "script"),
        ("-", " [1]", None, "json"),
        ("-", "{}", None, "json"),
        ("-", "a = 1", None, "toml"),
    ],
)
def test_the_format_of_a_file(name: str, text: str, given: str | None, kind: str) -> None:
    """By what is given, its suffix, its first line, or on standard input its first letter."""
    assert format_of(name, text, given) == kind


def test_settings_are_toml_or_text() -> None:
    """`3` is a number, `fit` and `1h` are text."""
    assert settings_of(["a.b=3", "name=fit", "t=1h", "x=[1, 2]", "e="]) == {
        "a.b": 3, "name": "fit", "t": "1h", "x": [1, 2], "e": "",
    }  # fmt: skip
    for wrong in ("a", "=1", ".=1"):
        with pytest.raises(SpecError, match="is not FIELD=VALUE"):
            settings_of([wrong])
