"""HAL's blob store keeps the contract that it asks of others, on the disk and on a virtual disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hal.blobs import Blobs
from hal.conformance import NonConformance
from hal.conformance import blobs as checks
from hal.conformance.blobs import CHECKS, HOLDERS, SMALL_BYTES, SMALL_FILES, BlobPlace, BlobWalk, check_blobs
from tests.blobs.places import DiskPlace, Place, VirtualPlace
from tests.examples import examples


@pytest.fixture(params=["disk", "virtual"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return DiskPlace(tmp_path) if request.param == "disk" else VirtualPlace()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_store_keeps_each_clause_of_the_contract(place: Place, check: Callable[[BlobPlace], None]) -> None:
    """Names, reading, sharing, pins, eviction, bounds, damage, scrubbing, assembling."""
    check(place)


def test_a_seeded_walk_finds_no_difference_from_the_model() -> None:
    """What the author of another store runs."""
    check_blobs(VirtualPlace(), seed=1)


class Walk(RuleBasedStateMachine):
    """Any order of steps, by two processes in turn."""

    @initialize()
    def begin(self) -> None:
        self.place = VirtualPlace()
        self.walk = BlobWalk(self.place.open(max_bytes=SMALL_BYTES, max_files=SMALL_FILES, fresh=True))

    @rule(step=st.sampled_from(BlobWalk.STEPS), number=st.integers(0, 1 << 16), holder=st.sampled_from(HOLDERS))
    def step(self, step: str, number: int, holder: str) -> None:
        self.walk.step(step, number, holder)

    @rule()
    def reopen(self) -> None:
        self.walk.reopened(self.place.open(max_bytes=SMALL_BYTES, max_files=SMALL_FILES, fresh=False))

    @invariant()
    def nothing_is_left_in_between(self) -> None:
        if hasattr(self, "place"):
            assert self.place.leftovers() == []


Walk.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=25, deadline=None)
TestWalk = Walk.TestCase
"""Safety: pinned blobs stay, bounds hold, and what is read is what was written."""


class Wrong:
    """A place whose stores break one clause."""

    def __init__(self, name: str, wrong: Callable[..., Any]) -> None:
        self._place = VirtualPlace()
        self._name, self._wrong = name, wrong

    def open(self, *, max_bytes: int, max_files: int, fresh: bool) -> Blobs:
        store = self._place.open(max_bytes=max_bytes, max_files=max_files, fresh=fresh)
        right = getattr(store, self._name)
        setattr(store, self._name, lambda *args, **more: self._wrong(right, *args, **more))
        return store

    def damage(self, digest: str) -> None:
        self._place.damage(digest)


@pytest.mark.parametrize(
    ("check", "name", "wrong", "says"),
    [
        (checks.check_names, "put", lambda right, data: right(bytes(data)).upper(), r"put\(\) of 0 bytes"),
        (checks.check_reading, "read", lambda right, *args: right(*args) + b"x", r"read\(0, None\) of 0 bytes"),
        (checks.check_reading, "find", lambda right, blob: None, r"find\(\) of 0 bytes"),
        (checks.check_missing, "pin", lambda right, blob, holder: None, r"pin\(\) of a missing blob: returned None"),
        (checks.check_pins, "evict", lambda right, to_bytes: (0, 0), r"evict\(\)"),
        (checks.check_pins, "unpin", lambda right, blob, holder: True, r"unpin\(\)"),
        (
            checks.check_scrubbing,
            "scrub",
            lambda right, *args: right(*args)._replace(damaged=()),
            r"found by scrub\(\)",
        ),
        (checks.check_assembling, "assemble", lambda right, manifest: "chunks:1", r"assemble\(\)"),
    ],
)
def test_a_store_that_breaks_a_clause_does_not_conform(
    check: Callable[[BlobPlace], None], name: str, wrong: Callable[..., Any], says: str
) -> None:
    """The check says which answer was wrong."""
    with pytest.raises(NonConformance, match=says):
        check(Wrong(name, wrong))
