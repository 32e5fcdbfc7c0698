"""Sections of hal.toml: read by their declarations, shown with where each value comes from, described in full."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from hal.core.model import SpecError
from hal.core.model.config_sections import (
    MAX_CONFIG_BYTES,
    Section,
    effective_settings,
    parse_toml,
    read_sections,
    reference,
    settings_of,
    toml_text,
    without_password,
)
from hal.core.model.units import Duration


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Shelf(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    width: Annotated[int, Meta(description="in books")]


class Library(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    colour: Annotated[Colour, Meta(description="of the door")] = Colour.RED
    lent: Annotated[Duration, Meta(description="how long")] = Duration(60_000)
    password: Annotated[str, Meta(description="of the archive")] = ""
    shelves: dict[str, Shelf] = {}


def check(section: Library) -> None:
    if section.lent > 3_600_000:
        raise SpecError("library.lent: out of range", hint="up to 1h")


LIBRARY = Section(
    name="library", kind=Library, reader="librarian", about="Books.", check=check, secrets={"password": lambda _: "***"}
)


def read(text: str, **more: Any) -> Library:
    return read_sections(parse_toml(text), (LIBRARY,), **more)[LIBRARY]


def test_what_the_file_lacks_has_its_default() -> None:
    """Of a section that is there, and of one that is not."""
    assert read("") == Library()
    assert read("[library]\nlent = '5m'") == Library(lent=Duration(300_000))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[libary]", "did you mean 'library'"),
        ("[library]\ncolor = 'red'", "did you mean 'colour'"),
        ("[library]\ncolour = 'green'", "library.colour: 'green' is not one of red, blue"),
        ("[library]\nlent = '2h'", "library.lent: out of range"),
        ("[library.shelves.a]\nwidht = 1", "did you mean 'width'"),
        ("library = 1", "library: "),
        ("[library", "not TOML"),
        ("#" * (MAX_CONFIG_BYTES + 1), "longer than"),
    ],
)
def test_a_mistake_is_one_error_that_names_it(text: str, says: str) -> None:
    """With the nearest name, for an unknown one."""
    with pytest.raises(SpecError) as caught:
        read(text)
    assert says in caught.value.message


def test_a_table_of_another_daemon_is_left_alone() -> None:
    """Its reader is somebody else, who also checks it."""
    assert read("[museum]\nticket = 5", others=lambda name: name == "museum") == Library()


def test_a_further_table_is_handed_over_as_it_is_written() -> None:
    """What is policy is read elsewhere."""
    found = read_sections(parse_toml("[queues.short]\npriority = 5"), (LIBRARY,), tables=("queues", "qos"))
    assert found.tables == {"queues": {"short": {"priority": 5}}}


def test_every_value_is_shown_with_where_it_comes_from() -> None:
    """What the file sets, also to the default, is the file's; a secret is not shown."""
    raw = parse_toml("[library]\ncolour = 'red'\npassword = 'x'\n[library.shelves.'a.b']\nwidth = 3")
    shown = effective_settings(raw, (LIBRARY,), read_sections(raw, (LIBRARY,)), "f.toml")
    assert [(one.key, one.value, one.source) for one in shown] == [
        ("colour", "red", "f.toml"),
        ("lent", "1m", "default"),
        ("password", "***", "f.toml"),
        ("shelves.a.b.width", 3, "f.toml"),
    ]


def test_every_key_is_described_with_its_type_and_default() -> None:
    """Those of tables within the section, too."""
    found = [(one.key, one.type, one.default, one.help) for one in settings_of(LIBRARY)]
    assert found[:2] == [("colour", "red or blue", "red", "of the door"), ("lent", "duration", "1m", "how long")]
    assert found[3] == ("shelves.NAME.width", "whole number", None, "in books")
    assert "| `shelves.NAME.width` | whole number | required | in books |\n" in reference((LIBRARY,))


PLAIN = st.recursive(
    st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3),
    max_leaves=5,
)


@given(PLAIN)
def test_a_shown_value_is_toml_that_gives_it_back(value: Any) -> None:
    """Whoever copies it into the file gets the same setting."""
    assert tomllib.loads(f"x = {toml_text(value)}") == {"x": value}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://hal:secret@db/hal", "postgresql://hal:***@db/hal"),
        ("postgresql://hal@db/hal?password=secret", "postgresql://hal@db/hal?***"),
        ("postgresql://hal:a@b:c@db/hal", "postgresql://hal:***@db/hal"),
        ("sqlite:////var/hal.sqlite", "sqlite:////var/hal.sqlite"),
        ("secret", "***"),
        ("", ""),
    ],
)
def test_safety_no_password_of_a_database_is_shown(url: str, shown: str) -> None:
    """Neither before the host nor among the options."""
    assert without_password(url) == shown
