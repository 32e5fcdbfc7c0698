"""Lower bounds of dependencies: no version with a known hole that HAL's use of it can reach."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
FIRST_FIXED: Final = {"cryptography": (46, 0, 5), "litestar": (2, 20)}
"""CVE-2024-12797 and CVE-2026-26007 of cryptography; what litestar 2.20.0 lists under security."""


def numbers(text: str) -> tuple[int, ...]:
    """`2.0.36` as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def bounds() -> dict[str, tuple[int, ...]]:
    """The lower bound of each dependency."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return {re.split(r"[\[>=]", one)[0].lower(): numbers(one.partition(">=")[2]) for one in listed}


@pytest.mark.parametrize("name", sorted(FIRST_FIXED))
def test_no_version_with_a_known_hole_will_do(name: str) -> None:
    """(attempt 103) The lower bound is not below the first version without it."""
    assert bounds()[name] >= FIRST_FIXED[name]


def test_what_is_pinned_satisfies_the_bounds() -> None:
    """constraints.txt is what pyproject.toml allows."""
    pins = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    for name, bound in bounds().items():
        assert numbers(pins[name]) >= bound, name
