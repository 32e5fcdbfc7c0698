"""Where a plane is reached: the forms of its addresses, and their bounds. Pure.

REST: `unix:/PATH`, `http://HOST:PORT`, `https://HOST:PORT`. Wire: `unix:/PATH`, or `HOST:PORT` for TLS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hal.core.model.errors import SpecError, shown

MAX_ANNOUNCED: Final = 64
"""Planes that a controller knows at once."""
MAX_ADDRESSES: Final = 8
"""Of one plane, of each kind."""
MAX_ADDRESS: Final = 256
"""Characters of an address."""
DEFAULT_EXPIRES_MS: Final = 60_000
LONGEST_EXPIRES_MS: Final = 3_600_000

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_PLANE_NAME: Final = 63
_UNIX: Final = re.compile(r"unix:/[^\x00-\x1f\x7f]+")
_HOST: Final = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
_URL: Final = re.compile(rf"https?://{_HOST}(:[0-9]{{1,5}})?/?")
_PORT: Final = re.compile(rf"{_HOST}:[0-9]{{1,5}}")


def check_plane_name(name: str) -> str:
    """Return it.

    Raises:
        SpecError: it is not a plane's name.
    """
    if len(name) > MAX_PLANE_NAME or not _NAME.fullmatch(name):
        raise SpecError(f"'{shown(name)}' is not a plane's name", hint="lower-case letters, digits and '-'")
    return name


def check_rest_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses at which people and programs reach a plane.

    Raises:
        SpecError: one is of another form, or there are too many.
    """
    return _checked(addresses, "rest", (_UNIX, _URL), "write unix:/PATH or https://HOST:PORT, without user or path")


def check_wire_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses that HAL's processes dial.

    Raises:
        SpecError: as in `check_rest_addresses`.
    """
    return _checked(addresses, "wire", (_UNIX, _PORT), "write unix:/PATH or HOST:PORT")


def check_listen_address(address: str, field: str) -> str:
    """Return where a plane listens on the network.

    Raises:
        SpecError: it is no `HOST:PORT`.
    """
    if len(address) > MAX_ADDRESS or not _PORT.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) < 1 << 16:
        raise SpecError(f"{field}: '{shown(address)}' is not an address", hint="write HOST:PORT, as in 0.0.0.0:7433")
    return address


def _checked(addresses: Sequence[str], field: str, forms: tuple[re.Pattern[str], ...], hint: str) -> tuple[str, ...]:
    if len(addresses) > MAX_ADDRESSES:
        raise SpecError(f"{field}: {len(addresses)} addresses; at most {MAX_ADDRESSES} are allowed")
    for address in addresses:
        if len(address) > MAX_ADDRESS or not any(form.fullmatch(address) for form in forms):
            raise SpecError(f"{field}: '{shown(address)}' is not an address", hint=hint)
    return tuple(dict.fromkeys(addresses))
