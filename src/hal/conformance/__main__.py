"""`python -m hal.conformance ENTRYPOINT …`: check installed policies by the names of their entry points.

`module:object` checks a policy that is not installed. Exit code 0: all conform; 1: one does not; 2: one was not found.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass
from typing import Any

from hal.conformance import CASES, NonConformance, check
from hal.core.interfaces.policy import GROUP
from hal.core.model.printable import printable


def main(argv: list[str] | None = None) -> int:
    """Check each policy and print the result."""
    parser = argparse.ArgumentParser(prog="python -m hal.conformance", description=__doc__)
    parser.add_argument("policies", nargs="+", metavar="ENTRYPOINT", help="an entry point's name, or module:object")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default 0)")
    asked = parser.parse_args(argv)
    worst = 0
    for text in asked.policies:
        worst = max(worst, _checked(text, asked.seed))
    return worst


def _checked(text: str, seed: int) -> int:
    try:
        policy = _loaded(text)
    except LookupError as error:
        sys.stderr.write(printable(f"{text}: {error.args[0]}\n", lines=True))
        return 2
    try:
        check(policy, seed=seed)
    except NonConformance as error:
        sys.stderr.write(printable(f"{text}: {error}\n", lines=True))
        return 1
    sys.stdout.write(f"{text}: '{policy.info.name}' conforms to {policy.info.interface} ({CASES} cases)\n")
    return 0


def _loaded(text: str) -> Any:
    """Load the policy; raises LookupError with one sentence."""
    if ":" in text:
        found = [EntryPoint(name=text, value=text, group=GROUP)]
    else:
        found = list(entry_points(group=GROUP, name=text))
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
        raise LookupError(f"no entry point of that name in {GROUP}; installed: {known}")
    try:
        policy = found[0].load()
        return policy() if isclass(policy) else policy
    except Exception as error:  # somebody else's code, run for the first time: it may raise anything
        raise LookupError(f"cannot be loaded: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
