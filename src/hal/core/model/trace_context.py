"""The `traceparent` of W3C Trace Context, by which a job belongs to a trace that began outside HAL.

Pure. Source: https://www.w3.org/TR/trace-context/, section 3.2.
"""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,200})?")


def trace_id_of(traceparent: str) -> str:
    """Return the trace id, 32 hexadecimal digits; '' if the text is not a valid `traceparent`."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return ""
    version, trace_id, parent_id, _, more = match.groups()
    # Versions after 00 may add fields, ff is none; ids of zeros mean nothing.
    if version == "ff" or (more and version == "00") or not trace_id.strip("0") or not parent_id.strip("0"):
        return ""
    return trace_id
