"""`[node]` of HAL_HOME/hal.toml, read by agents and keepers; the rest of the file is for the controller.

Imports little: the keeper stays small.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from hal.core.model.codec import convert
from hal.core.model.errors import SpecError
from hal.core.model.node_config import NO_NODE_SECTION, NodeSection, check_node_section
from hal.runtime.regular_files import read_regular
from hal.runtime.root_steps import SETTING

MAX_CONFIG_BYTES: Final = 1 << 20


def read_node_section(path: Path) -> NodeSection:
    """Read the section; empty without a file, or without the section in it.

    Raises:
        SpecError: the file is not TOML, or the section is invalid; names the field.
    """
    raw = _read(path)
    if "node" not in raw:
        return NO_NODE_SECTION
    try:
        return check_node_section(convert(raw["node"], NodeSection))
    except SpecError as error:
        raise SpecError(f"{path}: node: {error.message}", hint=error.hint or "see docs/config.md") from error


def steps_run_as_root(path: Path) -> bool:
    """Whether `[access]` allows other users' steps to run as root here.

    Raises:
        SpecError: the file is not TOML.
    """
    section = _read(path).get("access")
    return isinstance(section, dict) and section.get(SETTING) is True


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_regular(path, MAX_CONFIG_BYTES + 1, follow=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise SpecError(f"{path}: longer than {MAX_CONFIG_BYTES} bytes")
    try:
        raw: dict[str, Any] = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path}: not TOML: {error}") from error
    return raw
