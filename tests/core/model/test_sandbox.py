"""The words of a sandbox: what people write, and what is refused."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError, spec_from_plain
from hal.core.model.sandbox import MAX_WRITABLE, USUAL


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (True, USUAL),
        (False, ()),
        ("yes", USUAL),
        ("no", ()),
        ("no-network, private-tmp", ("no-network", "private-tmp")),
        (["private-tmp", "private-tmp"], ("private-tmp",)),
        ("yes,writable=/a/../b/", (*USUAL, "writable=/b")),
    ],
)
def test_a_sandbox_has_one_form_whichever_way_it_is_written(written: object, words: tuple[str, ...]) -> None:
    assert spec_from_plain({"command": ["x"], "sandbox": written}).sandbox == words


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("readonly", "sandbox: 'readonly' is not a word of a sandbox"),
        ("yes,writable=scratch", "not an absolute path"),
        ("yes,writable=/", "would undo read-only"),
        ("yes,writable=//", "would undo read-only"),
        ("private-tmp,writable=/x", "has no effect without read-only"),
        (["yes", "writable=/x\n"], "sandbox: 'yes' is not a word"),
        (["read-only", "writable=/x\n"], "not an absolute path"),
        (["read-only", *(f"writable=/{n}" for n in range(MAX_WRITABLE + 1))], "at most 16 are allowed"),
        (["read-only", "writable=/" + "x" * 5_000], "longer than"),
        (7, "sandbox: expected"),
    ],
)
def test_what_is_no_sandbox_is_refused_by_the_word(written: object, says: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_from_plain({"command": ["x"], "sandbox": written})
    assert says in str(refused.value)


def test_a_work_directory_that_is_everything_is_refused_beside_read_only() -> None:
    with pytest.raises(SpecError, match="workdir: / would undo read-only"):
        spec_from_plain({"command": ["x"], "sandbox": True, "workdir": "/"})
