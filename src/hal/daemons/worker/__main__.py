"""`python -m hal.daemons.worker --session FILE`: a worker of a session, until the session is over.

The process that is started only watches the one that runs tasks, and starts another one when that dies. SIGTERM lets it
finish the task that it has begun, and leave. Exit codes, as those of a worker of an array (docs/elastic.md): 0 the
session is over, or its broker is gone, or the broker's machine was not reached from here for an hour; 75 it gives its
place back, as it does when the broker of a durable session does not come back for a while; 2 the file is not usable, 70
workers died again and again.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from hal.core.model.errors import DeniedError, HALError, NotFoundError, SpecError, UnreachableError
from hal.core.model.printable import printable
from hal.daemons.worker.course import Course
from hal.daemons.worker.threads import WorkerOptions, run_threads
from hal.daemons.worker.worker import (
    EXIT_BROKEN,
    EXIT_LEFT,
    EXIT_MOVED,
    EXIT_OVER,
    EXIT_RENEWED,
    task_of_job,
)
from hal.runtime.frame_link import AwayError
from hal.runtime.last_words import Death, LastWords
from hal.runtime.session_file import read_session_file, shards_at
from hal.runtime.startup import EXIT_BAD_INPUT
from hal.runtime.worker_process import keep_running
from hal.wire.frames.sessions import MAX_THREADS


def main(argv: list[str]) -> int:
    """Run the worker; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="hal-worker", description="run tasks of a session")
    parser.add_argument("--session", required=True, metavar="FILE", help="the session's file")
    parser.add_argument(
        "--dial", action="append", default=[], metavar="ADDRESS",
        help="where else its broker is reached; of a session with several brokers, one of each",
    )  # fmt: skip
    parser.add_argument("--shape", default="", metavar="NAME", help="the shape of its slot")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="run so many tasks at once")
    parser.add_argument("--most-memory", type=int, default=0, metavar="BYTES", help="be replaced when it has more")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.threads <= MAX_THREADS or arguments.most_memory < 0:
        return _complain(SpecError(f"a worker has 1 to {MAX_THREADS} threads"), EXIT_BAD_INPUT)
    options = WorkerOptions(arguments.shape, arguments.threads, arguments.most_memory)
    file = Path(os.path.expandvars(arguments.session))
    try:
        course = Course(shards_at(read_session_file(file), arguments.dial), task_of_job())
    except NotFoundError as error:
        return _complain(error, EXIT_OVER)  # its broker has taken it away
    except HALError as error:
        return _complain(error, EXIT_BAD_INPUT)
    final = (EXIT_OVER, EXIT_BAD_INPUT, EXIT_LEFT)
    again = (EXIT_RENEWED, EXIT_MOVED)
    return keep_running(partial(_run, file, course, options), final=final, told=EXIT_LEFT, renewed=again)


def _run(file: Path, course: Course, options: WorkerOptions, words: LastWords, death: Death | None) -> int:
    if death is not None and death.code == EXIT_BROKEN:
        death = death._replace(how="its connection to the broker broke")
    try:
        return run_threads(course, options, words, death)
    except UnreachableError as error:
        if course.go_on():
            return EXIT_MOVED
        if course.over:  # and no other one is there
            return EXIT_OVER
        if isinstance(error, AwayError) and course.is_away_for_long():
            return _complain(error, EXIT_OVER)
        stays = isinstance(error, AwayError) or (course.session.journal and file.exists())
        return _complain(error, EXIT_LEFT if stays else EXIT_OVER)
    except (DeniedError, SpecError) as error:
        return _complain(error, EXIT_BAD_INPUT)


def _complain(error: HALError, code: int) -> int:
    print(printable(f"hal-worker: {error}"), file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
