"""Which process is killed when: seeded, and driven by the work's own progress."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tests.chaos.workload import NODES, Workload

NODE_NAMES: Final = tuple(f"n{number}" for number in range(1, NODES + 1))

_ALWAYS: Final = ("controller", "agent", "keeper", "helper", "job", "job")
_MORE: Final = ("job", "agent", "keeper", "helper", "agent+keeper", "keeper+helper", "agent+job", "cancel+agent")
_WITH_CONTROLLER: Final = ("controller", "controller+agent", "controller+keeper", "all", "cancel+controller")
_LATEST: Final = 0.85
"""Of the lines that an undisturbed run writes, so that every move comes while there is work."""


class Move(NamedTuple):
    """What is done to HAL after the `at`-th line of the diary."""

    at: int
    delay_ms: int
    """After that line: an end is on its way to the controller for some milliseconds."""
    victims: tuple[str, ...]
    """`controller`, `agent-NODE`, `keeper-NODE`, `helper-NODE` (one of them), `helpers-NODE` (all), `job` (a running
    step); or `submit NAME`, `cancel NAME`: what people do meanwhile."""

    def __str__(self) -> str:
        return f"after line {self.at} + {self.delay_ms} ms: {', '.join(self.victims)}"


def some_moves(rng: random.Random, work: Workload, more: int, with_controller: int) -> list[Move]:
    """Each kind of process killed at least once, `more` other kills, and `with_controller` that include it."""
    latest = max(1, int(sum(job.steps for job in work.first) * 2 * _LATEST))
    kinds = [*_ALWAYS, *rng.choices(_MORE, k=more), *rng.choices(_WITH_CONTROLLER, k=with_controller)]
    endless = [job.name for job in work.first if job.endless]
    moves = [_move(rng, latest, _victims(rng, kind, endless)) for kind in kinds]
    moves += [_move(rng, latest, (f"submit {job.name}",)) for job in work.later]
    return sorted(moves)


def _move(rng: random.Random, latest: int, victims: tuple[str, ...]) -> Move:
    return Move(rng.randint(1, latest), rng.choice((0, 0, rng.randint(1, 40))), victims)


def _victims(rng: random.Random, kind: str, endless: list[str]) -> tuple[str, ...]:
    node = rng.choice(NODE_NAMES)
    if kind == "all":
        victims = ["controller", *(f"{process}-{name}" for name in NODE_NAMES for process in ("agent", "keeper"))]
        rng.shuffle(victims)
        return tuple(victims)
    if kind == "keeper+helper":
        return (f"keeper-{node}", f"helpers-{node}")
    named = {name: f"{name}-{node}" for name in ("agent", "keeper", "helper")} | {"cancel": f"cancel {endless[0]}"}
    return tuple(named.get(name, name) for name in kind.split("+"))
