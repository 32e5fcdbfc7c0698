"""Patterns of paths as in .gitignore: `*` and `?` within a name, `[a-z]`, `**` for any number of directories.

Standard library only: programs that run without site packages import it. Pure. Matching takes no more than the product
of the numbers of names and of parts, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

ANY = "**"
WILD = frozenset("*?[")
"""What has a meaning of its own in a pattern."""
Part = Callable[[str], object] | None
"""Whether a name matches; None: any number of directories."""


@lru_cache(maxsize=1_024)
def parts_of(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern, one for each name of a path."""
    return tuple(None if part == ANY else re.compile(translate(part)).match for part in pattern.split("/"))


def matches(parts: Sequence[Part], names: Sequence[str]) -> bool:
    """Whether a path, name by name, matches a whole pattern."""
    # The positions in the pattern at which what was read so far may end.
    ends = _skipped({0}, parts)
    for name in names:
        after = set()
        for at in ends:
            if at == len(parts):
                continue
            part = parts[at]
            if part is None:
                after.add(at)
            elif part(name):
                after.add(at + 1)
        ends = _skipped(after, parts)
        if not ends:
            return False
    return len(parts) in ends


def _skipped(ends: set[int], parts: Sequence[Part]) -> set[int]:
    """With what follows where `**` stands for nothing."""
    for at in sorted(ends):
        while at < len(parts) and parts[at] is None:
            at += 1
            ends.add(at)
    return ends


class _Rule(NamedTuple):
    name: Callable[[str], object] | None
    """Matches a name anywhere; None: `parts` decide."""
    parts: tuple[Part, ...]
    leaves_out: bool
    only_directories: bool
    literal: str = ""
    """The only name that it matches, if that is known."""


def _names_of(rules: Sequence[_Rule]) -> frozenset[str] | None:
    """What is left out, if that is a set of names."""
    if any(not rule.literal or not rule.leaves_out for rule in rules):
        return None
    return frozenset(rule.literal for rule in rules)


class IgnoreRules:
    """What a file .halignore leaves out: the last pattern that matches decides, `!` before one brings back."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = []
        for line in lines:
            text = line.rstrip("\r\n").rstrip(" ")
            if not text or text.startswith("#"):
                continue
            leaves_out = not text.startswith("!")
            text = text.removeprefix("!").removeprefix("\\")
            only_directories, text = text.endswith("/"), text.rstrip("/")
            if not text:
                continue
            if "/" in text:
                rules.append(_Rule(None, parts_of(text.lstrip("/")), leaves_out, only_directories))
            else:
                literal = "" if WILD.intersection(text) else text
                rules.append(_Rule(re.compile(translate(text)).match, (), leaves_out, only_directories, literal))
        self._rules = rules[::-1]
        # Usually all rules are names to leave out: one look for each entry of the directory.
        self._names = {
            directory: _names_of([rule for rule in rules if directory or not rule.only_directories])
            for directory in (False, True)
        }

    def leaves_out(self, path: str, name: str, *, directory: bool) -> bool:
        """Whether an entry is left out; what is below a directory that is left out is not asked about.

        Args:
            path: from the top.
            name: its last part.
        """
        names = self._names[directory]
        if names is not None:
            return name in names
        for rule in self._rules:
            if rule.only_directories and not directory:
                continue
            if rule.name(name) if rule.name is not None else matches(rule.parts, path.split("/")):
                return rule.leaves_out
        return False
