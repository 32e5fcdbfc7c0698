"""What the bytes of tasks mean: values, buffers out of band, exceptions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.runtime.task_payloads import (
    BUFFERS,
    RemoteTraceback,
    decode_error,
    decode_value,
    encode_error,
    encode_value,
)
from tests.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=100) | st.just("__main__"),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@settings(max_examples=examples(300))
@given(VALUES)
def test_a_value_comes_back(value: Any) -> None:
    """From any kind of buffer."""
    assert decode_value(encode_value(value)) == value
    assert decode_value(memoryview(encode_value(value))) == value


def test_arrays_are_views_into_the_payload() -> None:
    """They are aligned, and not copied."""
    arrays = [np.arange(size, dtype=np.float64) for size in (1, 3, 1_000)]
    payload = encode_value(arrays)
    decoded = decode_value(payload)
    assert payload[0] == BUFFERS
    assert all((one == other).all() for one, other in zip(arrays, decoded, strict=True))
    assert not any(one.flags.owndata for one in decoded)


@pytest.mark.parametrize("cut", [1, 7, 9, 20, 200])
def test_a_cut_payload_with_buffers_is_refused(cut: int) -> None:
    """It is never taken for a shorter one."""
    payload = encode_value(np.arange(100))
    with pytest.raises(Exception):  # noqa: B017 - whatever unpickling raises
        decode_value(payload[:-cut])


def test_an_exception_keeps_its_type_and_shows_its_traceback() -> None:
    """As its cause."""
    try:
        {}["missing"]
    except KeyError as error:
        data = encode_error(error)
    decoded = decode_error(data, RuntimeError)
    assert isinstance(decoded, KeyError)
    assert isinstance(decoded.__cause__, RemoteTraceback)
    assert "missing" in str(decoded.__cause__)


class Unreadable(Exception):
    """Its arguments are not those of its constructor."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def test_an_exception_that_cannot_be_read_back_is_its_text() -> None:
    """Many exceptions of libraries are like that."""
    decoded = decode_error(encode_error(Unreadable(1, 2)), RuntimeError)
    assert type(decoded) is RuntimeError
    assert str(decoded) == "Unreadable: 1 and 2"


def test_what_is_no_exception_is_not_raised() -> None:
    """Whatever a worker sends, the client raises an exception."""
    data = pickle.dumps((pickle.dumps("text"), "traceback", "line"))
    assert type(decode_error(data, RuntimeError)) is RuntimeError
