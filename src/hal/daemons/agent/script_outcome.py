"""The outcome of one run of a site's program (a health check, a prolog, an epilog), and an explanation if it failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from hal.core.model.errors import HALError
from hal.core.model.units import Duration
from hal.runtime.identity import ProcessIdentity
from hal.runtime.interface import Runtime

MAX_REASON: Final = 300
"""Characters of a reason; the last line of a program's output is quoted."""


class Outcome(NamedTuple):
    """How a run ended."""

    reason: str = ""
    """Why it failed, in one line; '' if it succeeded."""


async def run_site_program(
    runtime: Runtime,
    command: Sequence[str],
    env: Mapping[str, str],
    timeout: Duration,
    began: Callable[[ProcessIdentity], None] | None = None,
) -> Outcome:
    """Run a program to its end.

    Args:
        began: called with its process, once it runs.
    """
    try:
        ended = await runtime.run_script(command, env=env, timeout_ms=int(timeout), began=began)
    except HALError as error:
        return Outcome(error.message)
    if ended.timed_out:
        return Outcome(f"{command[0]} took longer than {timeout}")
    if ended.code == 0:
        return Outcome()
    how = f"exit code {ended.code}" if ended.code > 0 else f"signal {-ended.code}"
    said = ended.output.strip().rpartition("\n")[2]
    return Outcome(f"{said} ({how})" if said else f"{command[0]} ended with {how}")


def printable(reason: str) -> str:
    """Shorten the reason to its end, without control characters."""
    return "".join(sign for sign in reason[-MAX_REASON:] if sign.isprintable())
