"""On which nodes attempts run or ran, and whose they are: of ended ones from the history, of others from the
controller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from hal.core.model import NotFoundError, UnreachableError
from hal.planes.observability.attribution import Answer, Key, Placed
from hal.planes.observability.history.part import Controller, History

JOBS_A_TURN: Final = 10
"""About which the controller is asked: of short jobs the history knows most by the time at which their lines come."""
TASKS_A_JOB: Final = 200


class _Job(msgspec.Struct, frozen=True):
    user: str


class _Task(msgspec.Struct, frozen=True):
    task: int
    attempt: int
    nodes: tuple[str, ...] = ()


class _Tasks(msgspec.Struct, frozen=True):
    tasks: tuple[_Task, ...]


class AttemptNodes:
    """Asks for both."""

    def __init__(self, history: History, controller: Controller) -> None:
        self._history, self._controller = history, controller

    async def look_up(self, keys: Sequence[Key]) -> Answer:
        """What is known of these.

        Raises:
            HALError: the history cannot be read, or no controller answers.
        """
        found = {Key(*key): Placed(user, nodes) for key, (user, nodes) in (await self._history.placed(keys)).items()}
        asked = set(found)
        missing: defaultdict[int, list[Key]] = defaultdict(list)
        for key in keys:
            if key not in found:
                missing[key.job].append(key)
        for job, of_job in islice(missing.items(), JOBS_A_TURN):
            some = of_job[:TASKS_A_JOB]
            found |= await self._of_job(job, some)
            asked.update(some)
        return Answer(found, asked)

    async def _of_job(self, job: int, keys: Sequence[Key]) -> Mapping[Key, Placed]:
        tasks = sorted({key.task for key in keys})
        query = {"tasks": ",".join(map(str, tasks)), "limit": str(len(tasks))}
        try:
            user = msgspec.json.decode(await self._controller.ask("GET", f"/v1/jobs/{job}"), type=_Job).user
            answer = await self._controller.ask("GET", f"/v1/jobs/{job}/tasks", query)
            newest = msgspec.json.decode(answer, type=_Tasks).tasks
        except NotFoundError:
            return {}  # there is none, or it was removed
        except msgspec.DecodeError as error:
            raise UnreachableError(f"the controller's answer about job {job} is not understood") from error
        placed = {Key(job, one.task, one.attempt): Placed(user, one.nodes) for one in newest if one.nodes}
        return {key: placed[key] for key in keys if key in placed}
