"""Whether steps can be sandboxed on this node: found out once, by running `true` in a sandbox, for its facts."""

from __future__ import annotations

from typing import Final

from hal.core.model.sandbox import WORDS
from hal.daemons.agent.keeper.helper_process.sandbox import find_bubblewrap, sandboxed
from hal.runtime.trial import ends_well

BUBBLEWRAP: Final = "bwrap"
PROBE_S: Final = 10.0


def find_sandbox() -> str:
    """Return what makes sandboxes here; '': nothing can, for want of bubblewrap or because the kernel refuses."""
    if not find_bubblewrap():
        return ""
    command = sandboxed(WORDS, "/bin/true", ["true"], {}, here="/")
    return BUBBLEWRAP if ends_well(command, PROBE_S) else ""
