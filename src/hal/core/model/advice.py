"""Advice: what planes report for policies to read, as columns of keys and values; its key spaces and bounds.

Pure. Advice changes the quality of decisions, never what is allowed: nothing depends on its being there.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from hal.core.model.errors import SpecError

MAX_KINDS: Final = 64
"""Kinds of advice held at once."""
MAX_KEYS_A_REQUEST: Final = 50_000
"""Keys in one request; a larger table is put as a whole part and deltas."""
MAX_KEYS: Final = 500_000
"""Keys of all kinds together."""
MAX_KEY_CHARS: Final = 256
MAX_VERSION: Final = (1 << 53) - 1
"""Every JSON parser can hold it exactly."""
DEFAULT_EXPIRES_MS: Final = 5 * 60_000
MAX_EXPIRES_MS: Final = 7 * 24 * 3_600_000
_KIND: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_KIND_CHARS: Final = 63


class KeySpace(StrEnum):
    """What the keys of a kind name. Fixed while the kind is held.

    There is none for classes or shapes of work: they have no name outside the engine that outlives them. What is meant
    for a class of work is said of its queue, account, user or jobs.
    """

    NODES = "nodes"
    """Names of nodes. A Score reads them."""
    QUEUES = "queues"
    ACCOUNTS = "accounts"
    USERS = "users"
    """Names; an Order reads these three for whole buckets."""
    JOBS = "jobs"
    """Job ids, as numbers. An Order reads them for single jobs."""


def check_kind(name: str) -> str:
    """Return the name of a kind.

    Raises:
        SpecError: it is not lower-case letters, digits and single hyphens, or longer than MAX_KIND_CHARS.
    """
    if len(name) > MAX_KIND_CHARS or not _KIND.fullmatch(name):
        raise SpecError(
            f"'{name[:MAX_KIND_CHARS]}' is not a name for a kind of advice",
            hint=f"lower-case letters, digits and single hyphens, at most {MAX_KIND_CHARS}, for example 'price'",
        )
    return name
