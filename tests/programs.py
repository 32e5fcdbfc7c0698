"""A PATH on which a program is not found, although this machine has it."""

from __future__ import annotations

import os
from pathlib import Path


def path_without(name: str, directory: Path) -> str:
    """This process's PATH with each directory that has the program replaced by links to all else in it.

    Args:
        directory: for the links; created.
    """
    parts = []
    for number, part in enumerate(os.environ["PATH"].split(":")):
        if not os.path.exists(os.path.join(part, name)):
            parts.append(part)
            continue
        links = directory / str(number)
        links.mkdir(parents=True)
        for program in os.listdir(part):
            if program != name:
                (links / program).symlink_to(os.path.join(part, program))
        parts.append(str(links))
    return ":".join(parts)
