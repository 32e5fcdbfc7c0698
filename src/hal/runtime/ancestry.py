"""Which step a process of this machine belongs to, as far as /proc says: by what it, its parents, or the leaders of
their sessions were started with.

It finds whoever does not hide: a process that empties its environment and leaves its parents is not found.
"""

from __future__ import annotations

from typing import Final

MAX_ANCESTORS: Final = 64
"""Parents that are looked at."""
MAX_ENVIRON_BYTES: Final = 1 << 21
MAX_KNOWN: Final = 1_024
"""Processes of which is remembered what they were started with: a shell asks often."""
_GONE: Final = (FileNotFoundError, ProcessLookupError, PermissionError)
ATTEMPT: Final = b"HAL_ATTEMPT_TOKEN="
"""What marks a step's processes; see the keeper."""

_KNOWN: Final[dict[tuple[int, int], bytes]] = {}
"""By pid and start: the attempt's token, b'' for none. What a process was started with stays as it is."""


def attempt_around(pid: int, instance: str) -> str:
    """The token of the attempt of that HAL that the process runs in; '' for none.

    Args:
        instance: of the HAL: what its attempts' tokens begin with.
    Raises:
        OSError: it cannot be looked at: for want of descriptors, say.
    """
    wanted = instance.encode() + b"-"
    known = False  # the process that asks is new: what it carries is not worth remembering
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
    """Parent, session, and when it began; zeros where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096)
    except _GONE:
        return 0, 0, 0
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[3]), int(fields[19])
