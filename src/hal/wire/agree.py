"""Agreeing on a wire version and features when two ends meet.

Pure. Each end tells the lowest and highest version it speaks; the highest that both speak is used, and of features
those that both name.
"""

from __future__ import annotations

from hal.wire.errors import VersionError
from hal.wire.frames import WIRE_VERSION, WIRE_VERSION_MIN, Hello

SPOKEN = (WIRE_VERSION_MIN, WIRE_VERSION)
"""Lowest and highest wire version that this code speaks."""

HELLO_TIMEOUT_MS = 5_000
"""How long whoever was dialled waits for the first frame."""
CREDIT = "credit"
"""Starts on credit: `credit_ms` of a start, `next` of an exit, `recall`."""
REMOVED = "removed"
"""Code of the goodbye that tells an agent that its node was removed; it dials again when it is started again."""
QUARANTINED = "quarantined"
"""Code of the goodbye that tells an agent that its node told what cannot be; it dials again and gets nothing new."""
NOT_LEADER = "not-leader"
"""Code of the goodbye of a controller that does not lead; its reason is `HOST:PORT` of the one that does, or empty."""
HEALTH = "health"
"""The agent tells with `health` which checks of its node fail; until it has, what was told before holds."""
GATES = "gates"
"""The agent tells with `gates` for which steps a prolog or an epilog of its node runs, and which of these failed."""
FEATURES: tuple[str, ...] = (CREDIT, HEALTH, GATES)
"""Features beyond the wire version that this code knows."""


def agree_version(theirs: tuple[int, int], ours: tuple[int, int] = SPOKEN) -> int:
    """The highest version in both ranges (lowest, highest; both included).

    Raises:
        VersionError: the ranges do not overlap, or one is no range; names both.
    """
    low, high = max(theirs[0], ours[0]), min(theirs[1], ours[1])
    if theirs[0] > theirs[1] or ours[0] > ours[1] or low > high:
        newer = "this side" if ours[0] > theirs[1] else "the other side"
        raise VersionError(
            f"no wire version in common: this side speaks {_range(ours)}, the other side {_range(theirs)}",
            hint=f"{newer} is newer; upgrade the other",
        )
    return high


def agree_features(theirs: tuple[str, ...], ours: tuple[str, ...] = FEATURES) -> tuple[str, ...]:
    """The features that both ends name, sorted."""
    return tuple(sorted(set(theirs) & set(ours)))


def agree(hello: Hello) -> tuple[int, tuple[str, ...]]:
    """What to answer to this hello: the version and the features to put into `Welcome`.

    Raises:
        VersionError: as in `agree_version`; answer with a `Goodbye` of its code and close.
    """
    return agree_version(hello.versions), agree_features(hello.features)


def _range(versions: tuple[int, int]) -> str:
    return str(versions[0]) if versions[0] == versions[1] else f"{versions[0]} to {versions[1]}"
