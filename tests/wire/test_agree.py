"""Agreeing on a version: the highest in common, or an error that names both ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.wire.agree import FEATURES, NOT_LEADER, QUARANTINED, REMOVED, SPOKEN, agree, agree_features, agree_version
from hal.wire.errors import VersionError
from hal.wire.frames.hello import Hello
from hal.wire.roles import Role

RANGES = st.tuples(st.integers(1, 8), st.integers(1, 8)).filter(lambda pair: pair[0] <= pair[1])


@given(RANGES, RANGES)
def test_the_highest_version_in_both_ranges_is_used(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    """Checked against listing the versions; both sides come to the same answer."""
    common = set(range(ours[0], ours[1] + 1)) & set(range(theirs[0], theirs[1] + 1))
    if common:
        assert agree_version(theirs, ours) == agree_version(ours, theirs) == max(common)
    else:
        with pytest.raises(VersionError):
            agree_version(theirs, ours)


def test_without_a_common_version_both_ranges_are_named() -> None:
    """The person sees which side is to be upgraded."""
    with pytest.raises(VersionError) as caught:
        agree_version((4, 5), (1, 3))
    assert "1 to 3" in str(caught.value)
    assert "4 to 5" in str(caught.value)
    assert "the other side is newer" in str(caught.value)


def test_a_range_that_is_none_is_refused() -> None:
    """Lowest above highest is a faulty peer."""
    with pytest.raises(VersionError):
        agree_version((3, 1), (1, 3))


def test_only_features_that_both_name_are_agreed() -> None:
    """In sorted order, so that both sides write the same."""
    assert agree_features(("resume", "credit"), ("tls", "credit", "resume")) == ("credit", "resume")


def test_a_hello_of_this_version_is_agreed_with() -> None:
    """Our own hello is always answered with our own highest version."""
    assert agree(Hello(role=Role.AGENT, versions=SPOKEN, features=("unknown",))) == (SPOKEN[1], ())


@pytest.mark.parametrize(
    ("theirs", "ours", "message", "hint"),
    [
        ((4, 5), (1, 1), "this side supports 1, the other side 4 to 5", "the other side is newer; upgrade the other"),
        ((1, 1), (2, 3), "this side supports 2 to 3, the other side 1", "this side is newer; upgrade the other"),
    ],
)
def test_the_older_side_is_the_one_to_upgrade(
    theirs: tuple[int, int], ours: tuple[int, int], message: str, hint: str
) -> None:
    """A range of one version is written as that one."""
    with pytest.raises(VersionError) as caught:
        agree_version(theirs, ours)
    assert (caught.value.message, caught.value.hint) == (f"no wire version in common: {message}", hint)


@pytest.mark.parametrize(("theirs", "ours"), [((3, 1), (1, 3)), ((1, 3), (3, 1)), ((3, 1), (3, 1))])
def test_on_neither_side_is_a_range_that_is_none_agreed_with(theirs: tuple[int, int], ours: tuple[int, int]) -> None:
    """Also where its ends are spoken."""
    with pytest.raises(VersionError):
        agree_version(theirs, ours)


def test_every_feature_of_this_version_is_named() -> None:
    """Peers that know them, too, use them."""
    assert FEATURES == (
        "credit", "health", "gates", "job-gates", "forget", "secrets", "outputs", "streams", "arguments", "step-files",
        "dialects", "interactive", "services", "hostfiles", "umask", "ranks", "relays", "files",
        "planes",
    )  # fmt: skip


def test_the_codes_of_goodbyes_are_those_that_older_peers_know() -> None:
    """They act on them."""
    assert (REMOVED, QUARANTINED, NOT_LEADER) == ("removed", "quarantined", "not-leader")
