"""What Slurm's `--switches=COUNT[@TIME]` becomes: the nodes of a job within one switch, where that is what it says.

Pure. Slurm waits for a job's switches for some time (`@TIME`, else what the site has set) and then starts it anywhere:
with a time it is `pack`, without one `within`, which waits as long as it takes. It is applied for one switch, and at a
HAL whose topology has switches; where it is not, HAL still places the job on as few of them as it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from hal.cli.jobs.foreign_options import Translation, bad, duration
from hal.core.model.topology.packing import packing_of

LEVEL: Final = "switch"
"""What HAL calls the leaf switches of Slurm's trees."""


def slurms_switches(made: Translation, text: str, *, several: bool, levels: Callable[[], Sequence[str]]) -> None:
    """Translate `--switches`.

    Args:
        several: whether it is a job of several nodes.
        levels: asks the HAL for the levels of its topology; only where they matter.
    Raises:
        SpecError: a value that sbatch would refuse.
    """
    asked = re.fullmatch(r"([0-9]{1,9})(@.+)?", text.strip())
    if asked is None or int(asked[1]) == 0:
        bad("--switches", text, "write COUNT or COUNT@TIME")
    elif not several:
        made.ignore("--switches", "one node is on one switch")
    elif int(asked[1]) > 1:
        made.ignore("--switches", "HAL takes as few switches as it can; it waits for one: #HAL --pack switch:30m")
    elif LEVEL not in levels():
        made.ignore("--switches", "the topology of this HAL has no switches")
    elif asked[2]:
        time = asked[2][1:].strip()
        packed = f"{LEVEL}:{duration('--switches', f'{time}m' if time.isdigit() else time)}"
        packing_of(packed)
        made.put("pack", packed, f"pack {packed}")
    else:
        made.put("within", LEVEL, f"within {LEVEL} (HAL waits for one as long as it takes)")
