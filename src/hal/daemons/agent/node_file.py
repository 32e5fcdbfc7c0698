"""`[node]` of HAL_HOME/hal.toml, read by agents and keepers; the rest of the file is for the controller.

Imports little: the keeper stays small.
"""

from __future__ import annotations

from pathlib import Path

from hal.core.model.config_sections import parse_toml, read_own
from hal.core.model.declared_gpus import declared_gpus
from hal.core.model.errors import SpecError
from hal.core.model.facts import GpuFacts
from hal.core.model.node_config import NODE, NodeSection
from hal.runtime.config_file import config_text
from hal.runtime.step_users import FORMER_SETTING, GONE, SETTING


def read_node_section(path: Path) -> NodeSection:
    """Read the section; empty without a file, or without the section in it.

    Raises:
        SpecError: the file is not TOML, or the section is invalid; names the field.
    """
    return read_own(config_text(path), NODE, str(path))


def declared_here(path: Path) -> tuple[GpuFacts, ...]:
    """The GPUs that the file declares; () where HAL is to look for them.

    Raises:
        SpecError: as `read_node_section`.
    """
    return declared_gpus(read_node_section(path).gpus)


def run_as_owner(path: Path) -> bool:
    """Whether `[access]` lends everybody who may submit the owner's account.

    Raises:
        SpecError: the file is not TOML, or is one of an earlier version.
    """
    section = parse_toml(config_text(path), str(path)).get("access")
    access = section if isinstance(section, dict) else {}
    if FORMER_SETTING in access:
        raise SpecError(f"{path}: access.{FORMER_SETTING}: {GONE.format(SETTING + ' = true')}")
    return access.get(SETTING) is True
