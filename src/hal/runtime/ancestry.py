"""Find the step that a process of this machine belongs to, from /proc: by its own start environment, that of its
parents, or of their session leaders.

This finds processes that do not hide: one that empties its environment and leaves its parents is not found.
"""

from __future__ import annotations

from typing import Final

MAX_ANCESTORS: Final = 64
"""Parents to examine."""
MAX_ENVIRON_BYTES: Final = 1 << 21
MAX_KNOWN: Final = 1_024
"""Processes whose start environment is remembered, because a shell asks often."""
_GONE: Final = (FileNotFoundError, ProcessLookupError, PermissionError)
ATTEMPT: Final = b"HAL_ATTEMPT_TOKEN="
"""The variable that marks a step's processes; see the keeper."""

_KNOWN: Final[dict[tuple[int, int], bytes]] = {}
"""By pid and start time: the attempt's token, b'' for none. A process's start environment never changes."""


def attempt_around(pid: int, instance: str) -> str:
    """Return the token of the attempt of that HAL which the process runs in; '' for none.

    Args:
        instance: of the HAL: the beginning of its attempts' tokens.
    Raises:
        OSError: /proc cannot be read, for example for lack of descriptors.
    """
    wanted = instance.encode() + b"-"
    known = False  # the asking process is new: its environment is not worth remembering
    seen: set[int] = set()
    for _ in range(MAX_ANCESTORS):
        parent, session, began = _origin(pid)
        if not began or pid in seen:
            return ""
        if (found := _carried(pid, began, known=known)).startswith(wanted):
            return found.decode("ascii", "replace")
        seen.add(pid)
        if session > 1 and session not in seen and session != parent:
            seen.add(session)
            if (found := _carried(session, _origin(session)[2], known=True)).startswith(wanted):
                return found.decode("ascii", "replace")
        if parent <= 1:
            return ""
        pid, known = parent, True
    return ""


def _carried(pid: int, began: int, *, known: bool) -> bytes:
    if known and (pid, began) in _KNOWN:
        return _KNOWN[pid, began]
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            data = file.read(MAX_ENVIRON_BYTES)
    except _GONE:
        data = b""
    found = b""
    if ATTEMPT in data:
        found = next((entry for entry in data.split(b"\0") if entry.startswith(ATTEMPT)), b"").removeprefix(ATTEMPT)
    if known:
        if len(_KNOWN) >= MAX_KNOWN:
            _KNOWN.clear()
        _KNOWN[pid, began] = found
    return found


def _origin(pid: int) -> tuple[int, int, int]:
    """Parent, session and start time; zeros where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096)
    except _GONE:
        return 0, 0, 0
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[3]), int(fields[19])
