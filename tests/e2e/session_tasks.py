"""Tasks of sessions; workers import them, so this module imports little."""

from __future__ import annotations

import os
import time


def napping(number: int) -> int:
    """Return the number after a while."""
    time.sleep(0.05)
    return number


def counted(file: str, number: int) -> int:
    """Note that it began, at the end of a file."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, f"{number}\n".encode())
    finally:
        os.close(fd)
    return number


def job_of_task() -> str:
    """The job whose task runs this."""
    return os.environ["HAL_JOB_ID"]
