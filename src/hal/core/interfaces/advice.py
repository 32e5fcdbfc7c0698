"""Which policies may read advice, and what they declare about it.

Pure. The engine refuses a policy whose declaration is wrong, and so does `hal.conformance`.
"""

from __future__ import annotations

from typing import Final

from hal.core.interfaces import order, score
from hal.core.interfaces.policy import PolicyInfo
from hal.core.model.advice import check_kind
from hal.core.model.errors import SpecError

READERS: Final = (order.INTERFACE, score.INTERFACE)
"""Interface versions with `reads_advice`."""
MAX_KINDS_READ: Final = 16
"""Kinds that one policy reads."""


def declaration_fault(info: PolicyInfo) -> str:
    """What is wrong with what a policy says that it reads; '' if nothing is."""
    if info.reads_preference and info.interface != score.INTERFACE:
        return f"{info.interface} has no reads_preference: what a job prefers is read by {score.INTERFACE}"
    reads = info.reads_advice
    if not isinstance(reads, tuple) or len(reads) > MAX_KINDS_READ or len(set(reads)) < len(reads):
        return f"reads_advice must be a tuple of at most {MAX_KINDS_READ} kinds, each once, and is {reads!r}"
    if reads and info.interface not in READERS:
        return f"{info.interface} has no reads_advice: advice is read by {' and '.join(READERS)}"
    for kind in reads:
        try:
            check_kind(kind)
        except SpecError as error:
            return f"reads_advice: {error.message} ({error.hint})"
    return ""
