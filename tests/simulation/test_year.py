"""A year of one HAL: a real controller and store, a node that comes every third day, virtual time.

What it leaves must not grow with its age: rows of every table, the store's files, output files at the node, and what a
start reads. Files with bounds of their own and no place here have tests of theirs: logs (tests/runtime), the audit log
(tests/daemons/controller/access), journals of keepers (tests/daemons/agent/keeper).
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from hal.core.model import Duration, spec_from_plain
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.controller import controller as controller_module
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.cycle import control_loop, retention
from hal.daemons.controller.service import readers
from hal.daemons.controller.service.access.views import TokenBody
from hal.daemons.controller.service.idempotency import Key
from hal.daemons.controller.service.jobs.control import Action
from hal.planes.tasks import Submitter
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.virtual_world import VirtualWorld
from hal.store import DAY_MS, Kept, Retention, Store
from hal.store.schema import metadata
from hal.wire.agree import FORGET
from hal.wire.frames.agent_keeper import Forget, Forgotten, StepStart, StepTemplate
from hal.wire.frames.conversation import Frame
from tests.daemons.controller.scripted_agent import ScriptedAgent

ROUNDS: Final = 122
ROUND_DAYS: Final = 3
"""A year, with work on every third day."""
ROUNDS_A_START: Final = 31
BY: Final = Submitter("alice")
JOBS: Final = 5
ATTEMPTS: Final = 9
"""One task is tried twice, one job is cancelled before it starts."""
KEPT: Final = Retention(
    jobs=Kept(jobs_ms=30 * DAY_MS, attempts_ms=20 * DAY_MS, outputs_ms=10 * DAY_MS),
    events_ms=15 * DAY_MS,
    commits_count=200,
    idempotency_ms=2 * DAY_MS,
    policies_count=5,
)
LAG: Final = 2
"""Rounds by which more may be there: retention looks once a day here, and a round begins with work."""
EVENTS: Final = 20
BOUNDS: Final = {
    "jobs": (30 // ROUND_DAYS + LAG) * JOBS,
    "specs": (30 // ROUND_DAYS + LAG) * JOBS,
    "job_labels": 30 // ROUND_DAYS + LAG,
    "task_spans": (30 // ROUND_DAYS + LAG) * JOBS,
    "attempts": (20 // ROUND_DAYS + LAG) * ATTEMPTS,
    "gang_nodes": 0,
    "removals": (30 // ROUND_DAYS + LAG) * JOBS,
    "removed_tasks": 0,
    "forgets": 2 * JOBS * LAG,
    "nodes": 1,
    "policies": 5,
    "join_tokens": 0,
    "certificates": 0,
    "readers": 0,
    "events": (15 // ROUND_DAYS + LAG) * EVENTS,
    "commits": 200 + EVENTS,
    "idempotency": 1 + LAG,
    "leader": 1,
    "controllers": 1,
    "meta": 20,
    # Nothing is periodic in this year, and nobody asks to be told of jobs; their own tests bound these.
    "periodic_jobs": 0,
    "periodic_runs": 0,
    "notices": 0,
}
"""Rows of each table, whatever its age: a new table needs a bound."""
STORE_BYTES: Final = 2 << 20
LOG_BYTES: Final = 8 << 20
OUTPUT_FILES: Final = (10 // ROUND_DAYS + LAG) * ATTEMPTS * 2


class UnflushedStore(Store):
    """A store on a disk that has nothing to do for a flush: no power fails here."""

    def flush(self) -> None:
        return


class Worker(ScriptedAgent):
    """A node with output files."""

    def __init__(self, runtime: Runtime, address: UnixAddress, outputs: OutputFiles) -> None:
        super().__init__(runtime, address, "n1", features=(FORGET,))
        self._files = outputs

    def _start(self, start: StepStart, template: StepTemplate) -> None:
        self._files.prepare(start.step)
        super()._start(start, template)

    def _received(self, frame: Frame) -> None:
        if not isinstance(frame, Forget):
            super()._received(frame)
            return
        self._files.forget(frame.pieces, frame.request)
        while self._files.work():
            pass
        for request in self._files.forgotten():
            self._send(Forgotten(request=request))


class Year:
    """One HAL, round after round."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.outputs = OutputFiles(root / "steps")
        self.largest: dict[str, int] = {}
        """Most that was there on any evening, by what it is."""
        self.loaded: list[int] = []
        """Rows that each start read."""
        self.over = asyncio.Event()

    @property
    def database(self) -> Path:
        return self.root / "hal.sqlite"

    async def main(self, runtime: Runtime) -> None:
        """The process of the controller, and of who works with it; it is started anew every quarter."""
        agent = Worker(runtime, UnixAddress(runtime.paths.wire_socket()), self.outputs)
        for first in range(0, ROUNDS, ROUNDS_A_START):
            controller = Controller(runtime, Config(retention=KEPT), lambda: UnflushedStore.open(self.database))
            await controller.start(UnixAddress(runtime.paths.wire_socket()))
            loop = runtime.spawn_task(controller.run(), "control loop")
            for number in range(first, min(first + ROUNDS_A_START, ROUNDS)):
                await self.work(controller, agent, number)
                await runtime.sleep(ROUND_DAYS * DAY_MS)
                self.look()
            controller.stop()
            await loop
            await controller.close()
            self.count_start()
        self.over.set()

    async def work(self, controller: Controller, agent: Worker, number: int) -> None:
        """The jobs of one round."""
        api = controller.api
        await agent.join()
        specs: list[dict[str, Any]] = [
            {"command": ["exit", "0"], "name": f"a{number}", "labels": {"day": str(number)}, "array": 5},
            {"command": ["exit", "0"], "dependencies": [f"afterok:a{number}"]},
            {"command": ["exit", "1"], "retries": {"max": 1, "backoff": "1s"}},
            {"command": ["echo", "x" * 100]},
            {"command": ["exit", "0"], "hold": True},
        ]
        made = await api.jobs.submit([spec_from_plain(spec) for spec in specs], BY, key=Key(f"round {number}", "f", ""))
        await api.jobs.control(Action.CANCEL, made.ids[-1:], None, BY)
        for job in made.ids:
            assert (await api.jobs.wait(int(job), 600.0)).end_ms is not None
        if number % 4 == 0:
            await api.tokens.create(TokenBody(user="alice", expires_in=Duration(DAY_MS)), BY)
        assert agent._connection is not None
        await agent._runtime.sleep(1_000)
        await agent.leave()

    def look(self) -> None:
        """Note how much there is."""
        with sqlite3.connect(self.database) as connection:
            rows = {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in metadata.tables
            }
        log = self.database.with_name("hal.sqlite-wal")
        files = sum(1 for path in (self.root / "steps").rglob("*") if path.is_file())
        there = {**rows, "store": self.database.stat().st_size, "log": log.stat().st_size, "files": files}
        self.largest = {what: max(count, self.largest.get(what, 0)) for what, count in there.items()}

    def count_start(self) -> None:
        """Note how many rows a start reads."""
        store = Store.open(self.database)
        loaded = store.load()
        self.loaded.append(len(loaded.jobs) + len(loaded.ended_dependencies) + len(loaded.nodes) + len(loaded.meta))
        store.close()


@pytest.mark.slow
def test_a_year_leaves_no_more_than_its_bounds_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On no evening of it; what is done every minute is done once a day, or it would be done half a million times."""
    for module, name in (
        (retention, "TRIM_EVERY_MS"),
        (retention, "EXPIRE_EVERY_MS"),
        (control_loop, "LONGEST_WAIT_MS"),
        (controller_module, "REMEMBER_EVERY_MS"),
        (readers, "KEEP_EVERY_MS"),
    ):
        monkeypatch.setattr(module, name, DAY_MS)
    year = Year(tmp_path)
    (tmp_path / "steps").mkdir()
    with VirtualWorld(1) as world:
        world.start(world.host("host"), "hal", year.main)
        world.run(year.over.wait())
    bounds = {**BOUNDS, "store": STORE_BYTES, "log": LOG_BYTES, "files": OUTPUT_FILES}
    assert set(BOUNDS) == set(metadata.tables)
    assert {what: (count, bounds[what]) for what, count in year.largest.items() if count > bounds[what]} == {}
    assert max(year.loaded) <= BOUNDS["nodes"] + BOUNDS["meta"]
