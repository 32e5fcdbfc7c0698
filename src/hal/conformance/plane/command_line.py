"""The command lines of the checks that speak REST: what they share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from http.client import HTTPException

from hal.conformance.answers import NonConformance
from hal.conformance.plane.rest import Rest
from hal.core.model.printable import printable


def checks_parser(verb: str, about: str | None, of: str = "a controller") -> argparse.ArgumentParser:
    """Create the parser of `python -m hal.conformance.plane.VERB URL`.

    Args:
        of: whose URL it is.
    """
    parser = argparse.ArgumentParser(prog=f"python -m hal.conformance.plane.{verb}", description=about)
    parser.add_argument("url", help=f"http://HOST:PORT, https://HOST:PORT or unix:///PATH of {of}")
    return parser


def rest_at(url: str) -> Rest:
    """The daemon at that URL, as whoever has the token in $HAL_TOKEN sees it."""
    return Rest(url, os.environ.get("HAL_TOKEN", ""))


def report(url: str, check: Callable[[], None], guarantees: str) -> int:
    """Check and print the result. Exit code 0: it conforms; 1: it does not, or does not answer.

    Args:
        guarantees: how many were checked, and of what.
    """
    try:
        check()
    except (NonConformance, OSError, HTTPException) as error:
        sys.stderr.write(printable(f"{url}: {error or type(error).__name__}\n", lines=True))
        return 1
    sys.stdout.write(printable(f"{url} conforms: {guarantees}\n", lines=True))
    return 0
