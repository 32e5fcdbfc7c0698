"""`[node]` of HAL_HOME/hal.toml, read by agents and keepers; the rest of the file is for the controller.

Imports little: the keeper stays small.
"""

from __future__ import annotations

from pathlib import Path

from hal.core.model.config_sections import parse_toml, read_own
from hal.core.model.node_config import NODE, NodeSection
from hal.runtime.config_file import config_text
from hal.runtime.root_steps import SETTING


def read_node_section(path: Path) -> NodeSection:
    """Read the section; empty without a file, or without the section in it.

    Raises:
        SpecError: the file is not TOML, or the section is invalid; names the field.
    """
    return read_own(config_text(path), NODE, str(path))


def steps_run_as_root(path: Path) -> bool:
    """Whether `[access]` allows other users' steps to run as root here.

    Raises:
        SpecError: the file is not TOML.
    """
    section = parse_toml(config_text(path), str(path)).get("access")
    return isinstance(section, dict) and section.get(SETTING) is True
