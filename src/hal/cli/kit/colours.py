"""Colours of states on a terminal, and where colour is allowed."""

from __future__ import annotations

import os
from typing import TextIO

STATE_COLOURS = {
    "running": "green",
    "up": "green",
    "succeeded": "blue",
    "pending": "yellow",
    "held": "magenta",
    "failed": "red",
    "timed-out": "red",
    "cancelled": "bright_black",
    "unreachable": "red",
    "stopped": "yellow",
    "down": "red",
    "cordoned": "magenta",
    "draining": "yellow",
}


def colour_allowed(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows colour, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
