"""Files of topologies, by the ends of their names.

Pure: the caller reads the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.slurm_conf import read_conf
from hal.core.model.topology.slurm_yaml import read_yaml
from hal.core.model.topology.toml_file import read_toml
from hal.core.model.topology.tree import Topology

MAX_TOPOLOGY_BYTES: Final = 4 << 20

_READERS: Final[dict[str, Callable[[str, str], Topology]]] = {
    ".toml": read_toml,
    ".conf": read_conf,
    ".yaml": read_yaml,
    ".yml": read_yaml,
}


def topology_from_text(text: str, file: str) -> Topology:
    """The topology in a file: `*.toml` is HAL's own, `*.conf` and `*.yaml` are Slurm's.

    Args:
        file: its name.
    Raises:
        SpecError: a mistake in it; names file and line.
    """
    end = file[file.rfind(".") :] if "." in file else ""
    if end not in _READERS:
        hint = "*.toml (HAL's own), topology.conf or topology.yaml (Slurm's)"
        raise SpecError(f"{shown(file)}: not a file of a topology by its name", hint=hint)
    return _READERS[end](text.removeprefix("\ufeff"), file)
