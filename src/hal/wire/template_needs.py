"""Which features a keeper needs for a step: without one of them it would run the step as if that was not asked for.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from hal.wire.agree import ARGUMENTS, DIALECTS, HOSTFILES, INTERACTIVE, SERVICES, STEP_FILES, UMASK
from hal.wire.frames.agent_keeper import StepTemplate


class Need(NamedTuple):
    """What templates may ask for."""

    feature: str
    asked: Callable[[StepTemplate], bool]
    """Whether a template asks for it."""
    what: str
    """For people: what the keeper of a node does not know."""


NEEDS: Final = (
    Need(ARGUMENTS, lambda one: bool(one.script and one.command), "arguments of scripts"),
    Need(STEP_FILES, lambda one: bool(one.stdin or one.stdout or one.stderr), "files for input and output"),
    Need(DIALECTS, lambda one: bool(one.dialect), "variables of other schedulers"),
    Need(INTERACTIVE, lambda one: bool(one.interactive), "interactive jobs"),
    Need(SERVICES, lambda one: one.service is not None, "services"),
    Need(HOSTFILES, lambda one: one.hostfile > 0, "files that name the nodes of a job"),
    Need(UMASK, lambda one: one.umask is not None, "umasks of jobs"),
)


def unmet_need(template: StepTemplate, features: Collection[str]) -> str:
    """What the template asks for that a keeper with these features does not know, for people; '' if it knows all."""
    return next((need.what for need in NEEDS if need.feature not in features and need.asked(template)), "")
