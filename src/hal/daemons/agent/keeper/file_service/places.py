"""Where the files of a node's steps are."""

from __future__ import annotations

from pathlib import Path

from hal.runtime.home import Home, check_node_name


def step_directories(home: Home, node: str, *, shared: bool) -> Path:
    """The directory of the steps' own directories. Other users than HAL's get to theirs through HAL's passage.

    Args:
        shared: each step runs as its own user.
    Raises:
        ConflictError: the passage cannot be created.
    """
    check_node_name(node)
    return home.passage() / f"work-{node}" if shared else home.node(node).root / "work"
