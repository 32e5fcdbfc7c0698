"""Whether a daemon of root may run other users' steps: they would be root. Standard library only."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "HAL_STEPS_RUN_AS_ROOT"
"""Set and not 0, it says what `steps_run_as_root` under `[access]` says."""
SETTING: Final = "steps_run_as_root"
ROOT: Final = "root"


def allowed(setting: bool) -> bool:
    """Whoever starts this daemon has said that everybody's steps may be root's.

    Args:
        setting: what hal.toml says.
    """
    return setting or os.environ.get(VARIABLE, "") not in ("", "0")


def only_root(setting: bool) -> bool:
    """This daemon is root's, and only root's own steps are to run."""
    return os.geteuid() == 0 and not allowed(setting)


def refusal(user: str) -> str:
    """Why a step of that user is not run."""
    who = f"'{user}'" if user else "whoever submitted it"
    return f"steps run as root here, and {who} is not root"


HINT: Final = (
    "start HAL as a user without rights, or let everybody who may submit be root: steps_run_as_root = true under "
    "[access] in hal.toml"
)
