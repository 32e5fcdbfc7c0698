"""Trees of text, as `hal graph`, `hal topology` and `hal node show --devices` draw them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct


class Branch(Struct, frozen=True):
    """A line of a tree, and the branches below it."""

    text: str
    job: str = ""
    """Id of the job that it is about; empty: of none, or of several."""
    branches: tuple[Branch, ...] = ()


def drawn(branches: Sequence[Branch], indent: str = "") -> Iterator[str]:
    """The lines of a tree."""
    for place, branch in enumerate(branches):
        last = place + 1 == len(branches)
        yield f"{indent}{'└─ ' if last else '├─ '}{branch.text}"
        yield from drawn(branch.branches, f"{indent}{'   ' if last else '│  '}")
