"""hal.toml as a file: its text, bounded, wherever a link leads; and sections that daemons of other packages read.

Such a daemon declares its section under the entry point group `hal.sections`, by the name of its table, as
`module:SECTION` (see `hal.core.model.config_sections`). Then nobody takes the table for a mistake, and `hal config
check` checks it. Imports little: the keeper stays small.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hal.core.model.config_sections import MAX_CONFIG_BYTES, Section
from hal.core.model.errors import SpecError
from hal.runtime.regular_files import read_regular

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "hal.sections"
MAX_SECTIONS: Final = 100
"""Sections of other packages that are known."""


def config_text(path: Path) -> str:
    """The text of hal.toml; empty when there is none.

    Raises:
        SpecError: it cannot be read, or is too long.
    """
    try:
        data = read_regular(path, MAX_CONFIG_BYTES + 1, follow=True)
        if len(data) > MAX_CONFIG_BYTES:
            raise SpecError(f"{path}: longer than {MAX_CONFIG_BYTES} bytes")
        return data.decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from error


@cache
def installed_sections() -> dict[str, EntryPoint]:
    """Where the sections of other packages are declared, by name; looked for once."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    return {point.name: point for point in list(entry_points(group=GROUP))[:MAX_SECTIONS]}


def is_anothers(name: str) -> bool:
    """Whether a daemon of another package reads that table."""
    return name in installed_sections()


def others_sections() -> list[Section[Any]]:
    """The sections of other packages, by name. Runs their code.

    Raises:
        SpecError: one cannot be loaded, or is no section; names its package.
    """
    found: list[Section[Any]] = []
    for name, point in sorted(installed_sections().items()):
        where = f"{point.dist.name if point.dist else point.value}: section '{name}'"
        try:
            section = point.load()
        except Exception as error:
            raise SpecError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(section, Section) or section.name != name:
            raise SpecError(f"{where}: {point.value} does not declare it", hint=f"name its table in {GROUP}")
        found.append(section)
    return found
