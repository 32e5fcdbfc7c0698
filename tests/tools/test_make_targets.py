"""`make test-PLANE`: each directory of tests/planes has its target, other words find files, no typing error passes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANES = sorted(
    path.name for path in (ROOT / "src" / "hal" / "planes").iterdir() if path.is_dir() and path.name != "__pycache__"
)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("plane", PLANES)
def test_every_plane_has_a_target_that_runs_its_tests(plane: str) -> None:
    """The directory is enough: nobody lists planes by hand."""
    assert make("-n", f"test-{plane}").stdout.rstrip().endswith(f" tests/planes/{plane}")


def test_a_name_that_is_no_plane_fails_and_says_which_there_are() -> None:
    """A typing error must not look like tests that passed."""
    ran = make("test-nosuchplane")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(
        f"no tests/planes/nosuchplane, and no tests/**/*nosuchplane*; planes: {' '.join(PLANES)}\n"
    )


def test_a_word_that_is_in_paths_of_tests_runs_those() -> None:
    """What attaches to the spine has its tests beside what it attaches to: `make test-gate` finds them."""
    ran = make("-n", "test-test_make_targets")
    assert "-path '*test_make_targets*'" in ran.stdout.splitlines()[-1]


def test_the_name_of_another_target_is_no_plane() -> None:
    """`make test-attacks` runs tests/attacks."""
    assert make("-n", "test-attacks").stdout.rstrip().endswith(" tests/attacks")
