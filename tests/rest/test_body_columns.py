"""Long columns in a body: read in pieces as they are read as a whole, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.rest import body_columns
from hal.rest.bodies import body_as
from hal.rest.body_columns import body_with_columns

MOST = 1_000


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As updates of advice are."""

    space: str
    keys: list[str | int]
    values: list[float | int | None]
    delta: bool = False


KEY = st.text(alphabet='ab,"\\ {}[]:\n\x00é\u2028', max_size=4) | st.integers(0, 1 << 70)
VALUE = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 70), 1 << 70)
BODY = st.builds(
    lambda space, keys, values, ascii_only, gap: json.dumps(
        {"space": space, "keys": keys, "values": values}, ensure_ascii=ascii_only, separators=(f"{gap},{gap}", ":")
    ).encode(),
    st.sampled_from(["nodes", "a,b"]), st.lists(KEY, max_size=9), st.lists(VALUE, max_size=9), st.booleans(),
    st.sampled_from(["", " ", "\n"]),
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    """Every body is long, and a piece ends at the next comma."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_columns, "LARGE_BYTES", 0)
        patch.setattr(body_columns, "PIECE_BYTES", 1)
        yield


def in_pieces(body: bytes) -> Columns | None:
    """What the body holds; None: refused."""
    try:
        return body_with_columns(body, Columns, ("keys", "values"), most=MOST)
    except SpecError:
        return None


def as_a_whole(body: bytes) -> Columns | None:
    """The same without pieces."""
    try:
        return body_as(body, Columns, most=MOST)
    except SpecError:
        return None


@given(BODY)
@settings(max_examples=200)
def test_columns_are_read_in_pieces_as_they_are_read_as_a_whole(body: bytes) -> None:
    """Keys with commas, quotes, backslashes and brackets in them, too."""
    assert in_pieces(body) == as_a_whole(body) is not None


def test_ordinary_columns_are_not_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of nodes and numbers, job ids as numbers and as texts; also with spaces, and with none."""

    def never(body: bytes, kind: type[Columns], *, most: int) -> Columns:
        raise AssertionError("read as a whole")

    monkeypatch.setattr(body_columns, "body_as", never)
    for keys in (["n1", "n-2", "é"], [1, 2, 3], ["1", 2, "3"]):
        for gap in (", ", ","):
            body = json.dumps({"space": "n", "keys": keys, "values": [1, 2.5, None]}, separators=(gap, ":")).encode()
            assert in_pieces(body) == Columns(space="n", keys=keys, values=[1, 2.5, None])


@given(BODY, st.integers(0), st.sampled_from([b"", b",", b'"', b"\\", b"[", b"]", b"{", b" ", b"1", b"}"]))
@settings(max_examples=300)
def test_what_is_malformed_is_refused_as_it_is_as_a_whole(body: bytes, at: int, put: bytes) -> None:
    """One byte is taken out, or another put in its stead."""
    at %= len(body)
    body = body[:at] + put + body[at + 1 :]
    assert in_pieces(body) == as_a_whole(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"space": "n", "keys": ["a",], "values": [1]}', b'{"space": "n", "keys": [,"a"], "values": [1]}',
        b'{"space": "n", "keys": "a", "values": [1]}', b'{"space": "n", "values": [1]}',
        b'{"space": "n", "keys": [["a"], ["b"]], "values": [1, 2]}', b'{"space": 1, "keys": [], "values": []}',
        b'{"space": "n", "keys": [], "values": [], "more": 1}', b'["a", "b"]', b"",
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_of_any_other_body(body: bytes) -> None:
    """A comma too many, no list, nested ones, a field that is missing, unknown or of another type, no object."""
    with pytest.raises(SpecError) as whole:
        body_as(body, Columns, most=MOST)
    with pytest.raises(SpecError) as pieces:
        body_with_columns(body, Columns, ("keys", "values"), most=MOST)
    assert pieces.value.message == whole.value.message
