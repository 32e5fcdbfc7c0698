"""`python -m hal.integrations.grafana DIRECTORY`: write HAL's dashboards there, as JSON that Grafana imports."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """0 when all are written."""
    parser = argparse.ArgumentParser(prog="python -m hal.integrations.grafana", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args(arguments).directory
    try:
        import grafana_foundation_sdk  # noqa: F401
    except ImportError:
        sys.stderr.write("Grafana's SDK is not installed: pip install 'hal-scheduler[grafana]'\n")
        return 2
    from hal.integrations.grafana.dashboards import DASHBOARDS, dashboard

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, board in DASHBOARDS.items():
            (directory / name).write_text(json.dumps(dashboard(board), indent=2) + "\n")
            sys.stdout.write(f"wrote {directory / name}\n")
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
