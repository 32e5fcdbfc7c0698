"""Where the files of a node's steps are: names that the agent and the file service both know.

    BASE/JOB.TASK.ATTEMPT.RANK     a step's own directory; it comes into being as a whole
    PRIVATE/ID                     one that is being filled, waits to be used, or is being removed
    PRIVATE/ready.DIGEST           a copy that is ready, for steps of one user that ship one bundle
    PRIVATE/gone.STEP              the directory of a step that is over, and of which nothing is collected

Both are beside each other, on one file system, because directories are moved between them. The service makes and
removes them; the agent only renames, so that a step need not wait for the service.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from hal.core.model import StepId
from hal.runtime.home import MADE, Home, check_node_name

GONE: Final = "gone."
READY_DIGITS: Final = 40


def step_directories(home: Home, node: str, *, shared: bool) -> Path:
    """The directory of the steps' own directories. Other users than HAL's get to theirs through HAL's passage.

    Args:
        shared: each step runs as its own user.
    Raises:
        ConflictError: the passage cannot be created.
    """
    check_node_name(node)
    return home.passage() / f"work-{node}" if shared else home.node(node).root / "work"


def private_directory(base: Path) -> Path:
    """The directory of what is made and removed, beside that of the steps' own directories."""
    return base.with_name(f"{MADE}{base.name}")


def ready_name(user: str, bundle: str) -> str:
    """The name of a copy that is ready."""
    return "ready." + hashlib.sha256(f"{user}\0{bundle}".encode()).hexdigest()[:READY_DIGITS]


def gone_name(step: StepId | str) -> str:
    """The name of the directory of a step that is over."""
    return f"{GONE}{step}"
