"""The file of a topology, as a file: its text, bounded, wherever a link leads."""

from __future__ import annotations

from pathlib import Path

from hal.core.model.errors import SpecError
from hal.core.model.topology.files import MAX_TOPOLOGY_BYTES, topology_from_text
from hal.core.model.topology.tree import Topology
from hal.runtime.regular_files import read_regular


def read_topology(directory: Path, file: str) -> Topology:
    """The topology that a file declares.

    Args:
        directory: what a relative name is relative to.
    Raises:
        SpecError: it cannot be read, is too long, or there is a mistake in it; names it.
    """
    path = directory / Path(file).expanduser()
    try:
        data = read_regular(path, MAX_TOPOLOGY_BYTES + 1, follow=True)
    except OSError as error:
        hint = "write the path of a file that HAL may read"
        raise SpecError(f"topology: {path}: {error.strerror or error}", hint=hint) from error
    if len(data) > MAX_TOPOLOGY_BYTES:
        raise SpecError(f"{path}: longer than {MAX_TOPOLOGY_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8: {error}") from error
    return topology_from_text(text, str(path))
