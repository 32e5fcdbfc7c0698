"""As whom steps run: each as its own user if HAL is root's; else only the owner's, or all of them as the owner.

Standard library only.
"""

from __future__ import annotations

import os
import pwd
from enum import StrEnum
from typing import Final

ROOT: Final = "root"
SETTING: Final = "run_as_owner"
"""Under `[access]` in hal.toml."""
VARIABLE: Final = "HAL_RUN_AS_OWNER"
"""Set and not 0, it has the meaning of the setting."""
FORMER_SETTING: Final = "steps_run_as_root"
FORMER_VARIABLE: Final = "HAL_STEPS_RUN_AS_ROOT"
GONE: Final = "no longer exists: a HAL of root runs each step as its user; to run all of them as root, set {}"


class Serving(StrEnum):
    """Whose steps a keeper runs, and as whom."""

    EACH_AS_ITSELF = "each-as-itself"
    """Everybody's, each as its own user: the keeper is root's."""
    OWNER_ONLY = "owner-only"
    """Its owner's."""
    ALL_AS_OWNER = "all-as-owner"
    """Everybody's, as its owner: whoever may submit has the owner's rights."""


def own_account() -> str:
    """Return the name of this process's user; a container may run under an id that has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def account_exists(user: str) -> bool:
    """Whether this machine's name service knows a user. Blocking, possibly for long."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def lends_account(setting: bool) -> bool:
    """Whether the owner has said that everybody's steps run as the owner.

    Args:
        setting: the value in hal.toml.
    """
    return setting or os.environ.get(VARIABLE, "") not in ("", "0")


def serving(setting: bool) -> Serving:
    """Whose steps run where this process starts them, and as whom."""
    if lends_account(setting):
        return Serving.ALL_AS_OWNER
    return Serving.EACH_AS_ITSELF if os.geteuid() == 0 else Serving.OWNER_ONLY


def check_former_variable() -> None:
    """Refuse a start that an earlier version was told about.

    Raises:
        SpecError: the variable is set; says what to set instead.
    """
    if FORMER_VARIABLE in os.environ:
        from hal.core.model.errors import SpecError

        raise SpecError(f"{FORMER_VARIABLE} {GONE.format(VARIABLE + '=1')}")


def refusal(how: Serving, owner: str, user: str) -> str:
    """Return why a step of that user does not run; '' if it does.

    Args:
        owner: whose keeper it is.
        user: who submitted the job; '': not given.
    """
    if how is Serving.ALL_AS_OWNER or user == owner:
        return ""
    if how is Serving.OWNER_ONLY:
        return f"{_named(user)} is not '{owner}', for whom alone this HAL runs steps"
    return "" if user else "it is not known who submitted it, so as whom to run it"


def _named(user: str) -> str:
    return f"'{user}'" if user else "whoever submitted it"


HINT: Final = (
    "start HAL as root, which runs each step as its user, or lend everybody who may submit the owner's account: "
    "run_as_owner = true under [access] in hal.toml"
)
