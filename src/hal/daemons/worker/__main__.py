"""`python -m hal.daemons.worker --session FILE`: a worker of a session, until the session is over.

The process that is started only watches the one that runs tasks, and starts another one when that dies. Exit codes: 0
the session is over, 2 the file is not usable, 69 no broker answers, 70 workers died again and again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from hal.core.model.errors import DeniedError, HALError, SpecError, UnreachableError
from hal.core.model.printable import printable
from hal.daemons.worker.worker import Worker, open_session
from hal.runtime.session_file import SessionFile, read_session_file
from hal.runtime.startup import EXIT_BAD_INPUT
from hal.runtime.worker_process import keep_running

EXIT_NO_BROKER: Final = 69
"""EX_UNAVAILABLE."""
EXIT_BROKEN: Final = 75
"""Of the process that runs tasks: its connection broke, and another one should try (EX_TEMPFAIL)."""


def main(argv: list[str]) -> int:
    """Run the worker; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="hal-worker", description="run tasks of a session")
    parser.add_argument("--session", type=Path, required=True, metavar="FILE", help="the session's file")
    arguments = parser.parse_args(argv)
    try:
        session = read_session_file(arguments.session)
    except HALError as error:
        return _complain(error, EXIT_BAD_INPUT)
    return keep_running(lambda: _run(session), final=(0, EXIT_BAD_INPUT, EXIT_NO_BROKER))


def _run(session: SessionFile) -> int:
    try:
        link, opened = open_session(session)
    except UnreachableError as error:
        return _complain(error, EXIT_NO_BROKER)
    except (DeniedError, SpecError) as error:
        return _complain(error, EXIT_BAD_INPUT)
    return 0 if Worker(link, opened, session).run() else EXIT_BROKEN


def _complain(error: HALError, code: int) -> int:
    print(printable(f"hal-worker: {error}"), file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
