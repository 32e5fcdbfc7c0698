"""Options that select jobs, in listings and in actions on many jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

STATE_GROUPS = ("active", "live", "ended")
"""Several states at once: of what holds resources, of what has not ended, of what has."""
FAILED_STATES = "failed,timed-out"
"""Of tasks, for `--failed`."""

_OF_SLURM: Final[Mapping[str, str]] = {
    "pd": "pending", "r": "running", "cg": "running", "completing": "running", "s": "suspended", "cd": "succeeded",
    "completed": "succeeded", "f": "failed", "to": "timed-out", "timeout": "timed-out", "oom": "failed",
    "out-of-memory": "failed", "ca": "cancelled", "canceled": "cancelled", "done": "succeeded", "queued": "pending",
    "q": "pending", "h": "held",
}  # fmt: skip
"""What states are called elsewhere."""

F = TypeVar("F", bound=Callable[..., Any])

_FILTERS = (
    click.option("-s", "--state", multiple=True, metavar="STATE", help="Only jobs in this state; repeatable."),
    click.option("-u", "--user", help="Only jobs of this user."),
    click.option("-Q", "--queue", help="Only jobs in this queue."),
    click.option("-n", "--name", help="Only jobs with this name; 'fi*' for several."),
    click.option("-A", "--account", help="Only jobs of this account."),
    click.option("-l", "--label", multiple=True, metavar="K[=V]", help="Only jobs with this label; repeatable."),
)


def filter_options(function: F) -> F:
    """Add the options that select jobs; the function takes them as `**which`, and `filters_from` reads them."""
    for option in reversed(_FILTERS):
        function = option(function)
    return function


def filters_from(which: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that were given.

    Raises:
        click.UsageError: a state that does not exist; a filter without a value, such as that of an unset variable: all
            jobs would match it.
    """
    for name, value in which.items():
        if value == "" or (isinstance(value, tuple) and any(not one.strip(", ") for one in value)):
            raise click.UsageError(f"--{name} is empty; give it a value, or leave it out to mean all")
    chosen = {name: value for name, value in which.items() if value}
    if "state" in chosen:
        chosen["state"] = [checked_state(text) for part in chosen["state"] for text in part.split(",") if text]
    return chosen


def checked_state(text: str) -> str:
    """The state of that name.

    Raises:
        click.UsageError: there is none; names the nearest.
    """
    import difflib

    from hal.core.model import TaskState

    known = [*(state.value for state in TaskState), *STATE_GROUPS]
    wanted = text.strip().lower().replace("_", "-")
    if wanted in known:
        return wanted
    near = [_OF_SLURM[wanted]] if wanted in _OF_SLURM else difflib.get_close_matches(wanted, known, n=1)
    raise click.UsageError(
        f"'{text}' is not a job state{f'; did you mean {near[0]}?' if near else ''} (states: {', '.join(known)})"
    )
