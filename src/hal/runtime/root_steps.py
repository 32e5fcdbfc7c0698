"""Whether a root daemon may run other users' steps, which would run as root. Standard library only."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "HAL_STEPS_RUN_AS_ROOT"
"""Set and not 0, it has the meaning of `steps_run_as_root` under `[access]`."""
SETTING: Final = "steps_run_as_root"
ROOT: Final = "root"


def allowed(setting: bool) -> bool:
    """Whether the operator has allowed everybody's steps to run as root.

    Args:
        setting: the value in hal.toml.
    """
    return setting or os.environ.get(VARIABLE, "") not in ("", "0")


def only_root(setting: bool) -> bool:
    """Whether this daemon runs as root and only root's own steps may run."""
    return os.geteuid() == 0 and not allowed(setting)


def refusal(user: str) -> str:
    """Why a step of that user is not run."""
    who = f"'{user}'" if user else "whoever submitted it"
    return f"steps run as root here, and {who} is not root"


HINT: Final = (
    "start HAL as an unprivileged user, or let everybody who may submit act as root: steps_run_as_root = true under "
    "[access] in hal.toml"
)
