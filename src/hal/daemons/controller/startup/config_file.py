"""hal.toml as a file: its text, bounded, wherever a link leads."""

from __future__ import annotations

from typing import Final

from hal.core.model import SpecError
from hal.runtime.home import Home
from hal.runtime.regular_files import read_regular

MAX_FILE_BYTES: Final = 16 << 20


def config_text(home: Home) -> str:
    """The text of hal.toml; empty when there is none.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        return read_regular(home.config, MAX_FILE_BYTES, follow=True).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{home.config} cannot be read: {error}") from error
