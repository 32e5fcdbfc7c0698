"""Agree on a wire version and features when two ends connect.

Pure. Each end sends the lowest and highest version it supports; the highest that both support is used, and the features
that both name.
"""

from __future__ import annotations

from hal.wire.errors import VersionError
from hal.wire.frames.conversation import WIRE_VERSION, WIRE_VERSION_MIN
from hal.wire.frames.hello import Hello

SPOKEN = (WIRE_VERSION_MIN, WIRE_VERSION)
"""Lowest and highest wire version that this code supports."""

HELLO_TIMEOUT_MS = 5_000
"""How long the listening side waits for the first frame."""
CREDIT = "credit"
"""Starts on credit: `credit_ms` of a start, `next` of an exit, `recall`."""
REMOVED = "removed"
"""Code of the goodbye for an agent whose node was removed; it connects again only after a restart."""
QUARANTINED = "quarantined"
"""Code of the goodbye for an agent whose node reported what cannot be true; it connects again and gets nothing new."""
NOT_LEADER = "not-leader"
"""Code of the goodbye of a controller that is not the leader; its reason is `HOST:PORT` of the leader, or empty."""
HEALTH = "health"
"""The agent sends with `health` which checks of its node fail; until it does, the former report remains valid."""
GATES = "gates"
"""The agent sends with `gates` which gates of its steps are not satisfied, prolog and epilog included, and which
failed."""
JOB_GATES = "job-gates"
"""The agent asks the services of the gates that a start's template names. Without it, such a step is not sent."""
FORGET = "forget"
"""The agent answers `forget` with `forgotten`; to another one it is not sent."""
SECRETS = "secrets"
"""The agent puts the secrets of steps where these find them, and removes them at their end; to another one, no step
whose job names secrets is sent."""
OUTPUTS = "outputs"
"""The keeper answers `read-outputs`; to another one, `read-log` is sent for each step."""
STREAMS = "streams"
"""The keeper answers `find-step`, the agent `open-stream`; to others they are not sent."""
ARGUMENTS = "arguments"
"""The keeper passes the `command` of a template with a `script` on to it, as its arguments."""
STEP_FILES = "step-files"
"""The keeper opens `stdin`, `stdout` and `stderr` of a template."""
DIALECTS = "dialects"
"""The keeper sets the variables of the template's `dialect`."""
INTERACTIVE = "interactive"
"""The keeper holds the input and output of `interactive` steps."""
SERVICES = "services"
"""The keeper gives the steps of a `service` their ports, and the agent probes them and sends `readiness`."""
HOSTFILES = "hostfiles"
"""The agent keeps the files of nodes that templates ask for with `hostfile`, and takes `job-nodes`; to others that is
not sent."""
UMASK = "umask"
"""The keeper begins steps with the `umask` of a template."""
STEP_FEATURES: tuple[str, ...] = (ARGUMENTS, STEP_FILES, DIALECTS, INTERACTIVE, SERVICES, HOSTFILES, UMASK)
"""What a template may ask for that older keepers drop without a word: see `hal.wire.template_needs`."""
RANKS = "ranks"
"""The agent opens streams of the kind `launch`; others are not asked to."""
RELAYS = "relays"
"""The agent opens streams that meet their clients at a relay, and makes a certificate for its streams if it has none;
others are not asked to."""
FILES = "files"
"""The agent has a file service; to another one, no step of a job that ships files, or has some collected, is sent."""
PLANES = "planes"
"""The agent is told which planes have announced where they are dialled."""
FEATURES: tuple[str, ...] = (
    CREDIT,
    HEALTH,
    GATES,
    JOB_GATES,
    FORGET,
    SECRETS,
    OUTPUTS,
    STREAMS,
    *STEP_FEATURES,
    RANKS,
    RELAYS,
    FILES,
    PLANES,
)
"""Features beyond the wire version that this code knows."""


def agree_version(theirs: tuple[int, int], ours: tuple[int, int] = SPOKEN) -> int:
    """Return the highest version in both ranges (lowest, highest; both included).

    Raises:
        VersionError: the ranges do not overlap, or one is not a range; the message names both.
    """
    low, high = max(theirs[0], ours[0]), min(theirs[1], ours[1])
    if low > high:  # so it is, too, where one of them is no range
        newer = "this side" if ours[0] > theirs[1] else "the other side"
        raise VersionError(
            f"no wire version in common: this side supports {_range(ours)}, the other side {_range(theirs)}",
            hint=f"{newer} is newer; upgrade the other",
        )
    return high


def agree_features(theirs: tuple[str, ...], ours: tuple[str, ...] = FEATURES) -> tuple[str, ...]:
    """Return the features that both ends name, sorted."""
    return tuple(sorted(set(theirs) & set(ours)))


def agree(hello: Hello) -> tuple[int, tuple[str, ...]]:
    """Return the version and the features for the `Welcome` that answers this hello.

    Raises:
        VersionError: as in `agree_version`; answer with a `Goodbye` of its code and close.
    """
    return agree_version(hello.versions), agree_features(hello.features)


def _range(versions: tuple[int, int]) -> str:
    return str(versions[0]) if versions[0] == versions[1] else f"{versions[0]} to {versions[1]}"
