"""What a keeper forgets: which files go, and how much a turn of its loop may cost."""

from __future__ import annotations

from math import ceil, log2
from pathlib import Path
from random import Random

import pytest

from hal.daemons.agent.keeper import deletion
from hal.daemons.agent.keeper.deletion import Deletions
from hal.wire.frames.agent_keeper import ForgetPiece

PIECES = 1_000


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)


@pytest.mark.parametrize("seed", range(20))
def test_exactly_the_files_that_are_named_are_deleted(tmp_path: Path, seed: int) -> None:
    """Ranges of tasks that overlap, touch, or are named twice, in any order, of two attempts."""
    rng = Random(seed)
    directory = tmp_path / "7"
    directory.mkdir()
    names = {(task, attempt): f"{task}.{attempt}.0.stdout" for task in range(30) for attempt in (1, 2)}
    for name in names.values():
        (directory / name).touch()
    pieces = [ForgetPiece(7, rng.choice((1, 2)), rng.randrange(30), rng.randint(1, 6)) for _ in range(8)]
    deletions = Deletions(str(tmp_path))
    deletions.add(pieces)
    while deletions.advance():
        pass
    gone = {(task, one.attempt) for one in pieces for task in range(one.first, one.first + one.count)}
    assert {path.name for path in directory.iterdir()} == {name for key, name in names.items() if key not in gone}


def test_safety_a_turn_costs_names_and_hardly_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second task of an array is forgotten, each a piece of its own: a search for each name that is looked at,
    not a look at all pieces."""
    monkeypatch.setattr(deletion, "MAX_LOOKED_PER_TURN", 200)
    directory = tmp_path / "7"
    directory.mkdir()
    for task in range(1, 2 * PIECES, 2):
        (directory / f"{task}.1.0.stdout").touch()
    deletions = Deletions(str(tmp_path))
    deletions.add([ForgetPiece(7, 1, Counted(2 * number), 1) for number in range(PIECES)], request=1)
    turns = []
    more = True
    while more:
        Counted.compared = 0
        more = deletions.advance()
        turns.append(Counted.compared)
    assert len(turns) > PIECES // 200
    assert max(turns) <= 200 * (ceil(log2(PIECES)) + 1)
    assert deletions.finished() == [1]
