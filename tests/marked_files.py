"""Which files of tests may hold a test that `-m` selects, as far as their paths and their text say. The others need not
be imported: importing all of them takes each process of a run ten seconds."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_DIRECTORIES: Final = {
    "attack": ("attacks",),
    "kernels": ("core/engine", "core/kernels"),
    "slow": ("cluster",),
}
"""Marks of all tests in a directory."""
_WORDS: Final = {"hypothesis": ("hypothesis",), "slow": ("mark.slow", "@seeds("), "soak": ("mark.soak",)}
"""Marks, and what each other file that has a test with them says."""
MARKS: Final = frozenset((*_DIRECTORIES, *_WORDS))
_OPERATORS: Final = frozenset(("and", "or", "not"))


def is_of(path: Path, mark: str) -> bool:
    """Whether the file is in a directory all of whose tests have the mark."""
    return any(path.is_relative_to(_HERE / directory) for directory in _DIRECTORIES.get(mark, ()))


@cache
def possible_marks(path: Path) -> frozenset[str]:
    """Those of MARKS that tests of this file may have."""
    text = path.read_text()
    said = {mark for mark, words in _WORDS.items() if any(word in text for word in words)}
    return frozenset(mark for mark in MARKS if mark in said or is_of(path, mark))


def may_select(expression: str, marks: frozenset[str]) -> bool:
    """Whether a test with some of these marks, or none, could be one of `-m EXPRESSION`."""
    words = set(re.findall(r"\w+", expression)) - _OPERATORS
    if not words <= MARKS or not re.fullmatch(r"[\w\s()]+", expression):
        return True
    open_marks = sorted(words & marks)
    subsets = chain.from_iterable(combinations(open_marks, size) for size in range(len(open_marks) + 1))
    closed = dict.fromkeys(words, False)
    return any(eval(expression, {"__builtins__": {}}, closed | dict.fromkeys(subset, True)) for subset in subsets)
