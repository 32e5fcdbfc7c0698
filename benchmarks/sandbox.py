"""What a sandbox adds to a lone step at a real node: from the start frame to the exit of `true`, in turn with none.

A real agent and keeper, the benchmark as their controller. Needs bubblewrap.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Final

from hal.core.model import StepId
from hal.core.model.sandbox import NO_NETWORK, USUAL
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from hal.wire.frames.agent_keeper import Start, StepStart, StepTemplate
from secrets_of_steps import Controller, at_a_node, report

LONE: Final = 100
WARM: Final = 15
REST_S: Final = 0.015
SKIPPED: Final = 77
"""Exit code by which `run.py` knows that this was not measured."""
TARGET_MS: Final = 20.0
"""What a sandbox may add to a start."""
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "none": (),
    "private-tmp": ("private-tmp",),
    "usual": USUAL,
    "usual-without-network": (*USUAL, NO_NETWORK),
}


def lone(node: Controller) -> dict[str, list[float]]:
    """Milliseconds from start to exit with each sandbox, in turn."""
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    job = 0
    for round_number in range(LONE + WARM):
        for kind, words in KINDS.items():
            job += 1
            time.sleep(REST_S)
            template = StepTemplate(command=("true",), env={"PATH": os.environ["PATH"]}, sandbox=words)
            steps = (StepStart(StepId(job, 0, 1, 0), 0, f"token-{job}", ("n1",), 0, 1, 0),)
            begin = time.perf_counter()
            node.send(Start(epoch=3, stamp_boot_ms=node.stamp, templates=(template,), steps=steps))
            node.ended(job)
            if round_number >= WARM:
                took[kind].append((time.perf_counter() - begin) * 1000)
    return took


def main() -> None:
    if not find_sandbox():
        print("no sandbox can be made here: apt-get install bubblewrap")
        raise SystemExit(SKIPPED)
    took = at_a_node(lone)
    plain = statistics.median(took["none"])
    report("sandbox-lone-step-none", plain, None, "start frame to exit frame of `true`, median")
    for kind, found in took.items():
        if kind != "none":
            report(f"sandbox-added-{kind}", statistics.median(found) - plain, TARGET_MS, "to such a step")


if __name__ == "__main__":
    main()
