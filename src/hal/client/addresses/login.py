"""The login: a HAL's address and the token for it, in a file that only its owner may read."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hal.core.model.errors import ConflictError, DeniedError
from hal.runtime.privacy import make_private, write_private
from hal.runtime.regular_files import read_regular

MAX_LOGIN_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Login:
    """One HAL elsewhere, and how to be let in."""

    url: str
    """Of its controllers, with commas between; or `unix://`."""
    token: str = ""
    """Empty where the kernel names the user (`unix://`)."""
    authority: str = ""
    """Certificate (PEM) of that HAL's own authority; empty: trust those of this machine."""
    plain: bool = False
    """Without TLS to any machine and to whoever answers there, as was asked for."""
    served_by: int | None = None
    """User id of whoever served it on this machine: no other user there is trusted to be that HAL."""
    expires_ms: int = 0
    """When the token ends; 0: it is not known."""
    renew_ms: int = 0
    """When the token is to be renewed, if there is something to renew it with."""
    refresh: str = ""
    """What the OpenID Connect provider takes for another token; empty: nothing."""
    issuer: str = ""
    """URL of that provider."""
    client_id: str = ""
    token_kind: str = ""
    """Which of its tokens the HAL wants."""


def login_file() -> Path:
    """`$XDG_CONFIG_HOME/hal/login.json`, else `~/.config/hal/login.json`."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(config) / "hal" / "login.json"


def read_login() -> Login | None:
    """What was kept; None: nothing was.

    Raises:
        DeniedError: others may read it, so the token may be known to them.
        ConflictError: it is damaged.
    """
    file = login_file()
    try:
        info = file.stat()
        text = read_regular(file, MAX_LOGIN_BYTES, follow=True).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConflictError(f"{file} cannot be read: {error}", hint="remove it: hal logout") from error
    if info.st_mode & 0o077 or info.st_uid != os.geteuid():
        raise DeniedError(
            f"{file} can be read by others, so its token may be known to them",
            hint="run hal logout, have the token revoked, and log in with another one",
        )
    import json

    try:
        raw = json.loads(text)
        served_by = raw.get("served_by")
        return Login(
            url=str(raw["url"]),
            token=str(raw["token"]),
            authority=str(raw.get("authority", "")),
            plain=raw.get("plain") is True,
            served_by=None if served_by is None else int(served_by),
            expires_ms=int(raw.get("expires_ms", 0)),
            renew_ms=int(raw.get("renew_ms", 0)),
            **{name: str(raw.get(name, "")) for name in ("refresh", "issuer", "client_id", "token_kind")},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConflictError(f"{file} is damaged", hint="remove it with hal logout, then log in again") from error


def keep_login(login: Login) -> Path:
    """Keep it in place of an earlier one; the file."""
    import json

    file = login_file()
    make_private(file.parent)
    write_private(file, json.dumps(asdict(login)) + "\n")
    return file


def forget_login() -> bool:
    """Whether there was one."""
    try:
        login_file().unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
