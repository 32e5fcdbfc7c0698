"""The threads of a worker that run tasks: each is a slot to the broker, with a connection of its own.

They share functions, shared values and modules. They leave together, and together they are replaced.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from hal.core.model.errors import UnreachableError
from hal.daemons.worker.course import Course
from hal.daemons.worker.memory import MemoryBound, SharedObjects
from hal.daemons.worker.worker import (
    EXIT_BROKEN,
    EXIT_LEFT,
    EXIT_MOVED,
    EXIT_OVER,
    EXIT_RENEWED,
    Hello,
    Worker,
    open_session,
)
from hal.runtime.last_words import Death, LastWords
from hal.runtime.worker_process import when_told_to_leave


class WorkerOptions(NamedTuple):
    """What a worker is started with.

    Attributes:
        shape: of its slot.
        threads: that run tasks.
        most_memory: bytes that its process may have; 0: any number.
    """

    shape: str = ""
    threads: int = 1
    most_memory: int = 0


def run_threads(course: Course, options: WorkerOptions, words: LastWords, death: Death | None) -> int:
    """Run tasks until the session is over, or the worker leaves; returns the exit code.

    Args:
        course: which broker is dialled; it changes when the worker is sent to another one.
        words: where the number of each thread is left for the process that replaces this one.
        death: how the one ended that this one replaces.
    Raises: as `open_session`.
    """
    workers: list[Worker] = []
    session, dial_s = course.session, course.dial_s

    def leave() -> None:
        for worker in workers:
            worker.leave()

    objects, bound = SharedObjects(), MemoryBound(options.most_memory, leave)
    former = death.numbers if death is not None else ()
    for at in range(options.threads):
        first = workers[0].number if workers else 0
        hello = Hello(options.shape, first, former[at] if at < len(former) else 0, death)
        try:
            link, opened = open_session(session, hello, dial_s)
        except UnreachableError:
            if not workers:
                raise
            return EXIT_BROKEN
        workers.append(Worker(link, opened, session, objects, bound))
    course.arrive()
    words.begin([worker.number for worker in workers])
    when_told_to_leave(leave)
    codes: list[int] = []

    def run(worker: Worker) -> None:
        code = worker.run()
        codes.append(code)
        if code == EXIT_BROKEN:
            leave()

    others = [
        threading.Thread(target=run, args=(worker,), name=f"hal-slot-{at}", daemon=True)
        for at, worker in enumerate(workers[1:], 2)
    ]
    for thread in others:
        thread.start()
    run(workers[0])
    for thread in others:
        thread.join()
    found = next((code for code in (EXIT_BROKEN, EXIT_OVER, EXIT_MOVED, EXIT_RENEWED) if code in codes), EXIT_LEFT)
    if found == EXIT_MOVED:
        shard = max(worker.moves_to for worker in workers)
        if shard >= 0:
            course.move(shard)
        else:
            course.go_on(over=True)
    return found
