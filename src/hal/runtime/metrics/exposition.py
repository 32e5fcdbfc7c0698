"""Which format a scrape is answered in. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_ACCEPT = 1_000
"""Characters of an Accept header that are looked at."""


def wants_protobuf(accept: str) -> bool:
    """Whether delimited protobuf messages are preferred to text: Prometheus does so when it takes native histograms."""
    protobuf = text = 0.0
    for entry in accept[:_MAX_ACCEPT].lower().replace(" ", "").split(","):
        media, *parameters = entry.split(";")
        quality = _quality(parameters)
        if media == "application/vnd.google.protobuf":
            if "encoding=delimited" in parameters:
                protobuf = max(protobuf, quality)
        elif media in ("text/plain", "text/*"):
            text = max(text, quality)
    return protobuf > text


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
