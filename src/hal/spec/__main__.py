"""`python -m hal.spec [--check] [DIRECTORY]`: generate the files under `spec/`, or say which have drifted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hal.spec import drifted, write


def main(arguments: list[str]) -> int:
    """0 when everything is as generated; with --check, 1 when a file has drifted."""
    parser = argparse.ArgumentParser(prog="python -m hal.spec", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file has drifted")
    parser.add_argument("directory", nargs="?", type=Path, default=Path("spec"))
    options = parser.parse_args(arguments)
    if options.check:
        stale = drifted(options.directory)
        for name in stale:
            sys.stderr.write(f"{options.directory / name} has drifted; run `python -m hal.spec`\n")
        return 1 if stale else 0
    for name in write(options.directory):
        sys.stdout.write(f"wrote {options.directory / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
