"""The page before 5,000 nodes and 5,000 jobs: ready time, CPU of its server with 10 pages, CPU of the browser; then how
long an array of 100,000 tasks and a graph of 100,000 jobs take to be drawn.

The controller, the page's server and Chromium are real processes; the nodes speak the agents' protocol from this
process. Nine of the ten pages are clients that ask what the page asks, as often as it does, so that ten browsers on two
cores do not measure each other.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _private_hal import cpu_s, pid_of, say
from run import SKIPPED
from tests.web.browser import CHROMIUM, Site, Visitor, chromium, free_port, site
from tests.web.graphs import pipeline

NODES: Final = 5_000
JOBS: Final = 5_000
PAGES: Final = 10
TASKS: Final = 100_000
WIDTH: Final = 9_999
"""Jobs of each step of the graph: 99,993 in all."""
WARM_S: Final = 10.0
MEASURED_S: Final = 30.0
POLLS: Final = {
    "controller/v1/wants": 5.0,
    "controller/v1/plan": 5.0,
    "controller/v1/attempts?newest=1&limit=20": 4.0,
    "controller/v1/attempts?newest=1&state=failed&limit=50": 15.0,
    "collector/v1/alerts?state=firing": 10.0,
    "collector/v1/nodes/latest": 60.0,
}
"""What the overview asks for beside its stream, and how often in seconds."""


DRAWN: Final = ".map canvas[style*=height]"
"""The map, when it is drawn."""


def descendants(name: str) -> list[int]:
    """Processes of that name which this one has started, directly or not."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            names[int(entry)] = text.split("(", 1)[1].rsplit(")", 1)[0]
            parents[int(entry)] = int(text.rsplit(")", 1)[1].split()[1])

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return [pid for pid, known in names.items() if known == name and ours(pid)]


@contextmanager
def pages(place: Site, count: int) -> Iterator[None]:
    """So many clients that ask as an open overview does, in a thread."""
    over = threading.Event()

    async def one() -> None:
        origin, key = place.link().split("/sign-in#")
        async with httpx.AsyncClient(base_url=origin, timeout=60) as http:
            assert (await http.post("/api/sign-in", json={"key": key})).status_code == 201
            await asyncio.gather(stream(http), *(poll(http, path, every) for path, every in POLLS.items()))

    async def stream(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/api/live?topics=nodes,pulse") as answer:
            async for _ in answer.aiter_raw():
                pass

    async def poll(http: httpx.AsyncClient, path: str, every: float) -> None:
        etag = ""
        while True:
            answer = await http.get(f"/api/{path}", headers={"if-none-match": etag} if etag else {})
            etag = answer.headers.get("etag", "")
            await asyncio.sleep(every)

    async def run() -> None:
        asking = [asyncio.ensure_future(one()) for _ in range(count)]
        await asyncio.to_thread(over.wait)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measure(place: Site) -> None:
    """All figures."""
    controller, web = pid_of(place.home, "controller"), pid_of(place.home, "web")
    with chromium() as browser:
        begin = time.perf_counter()
        first = Visitor(browser, place.origin)
        first.page.goto(place.link())
        first.page.wait_for_selector(DRAWN)
        say("page-ready-cold", time.perf_counter() - begin, "s", 2.0, higher=False, nodes=NODES, signing_in=True)
        first.go("/")
        with pages(place, PAGES - 1):
            time.sleep(WARM_S)
            used = {pid: cpu_s(pid) for pid in (controller, web, *descendants("chromium"))}
            begin = time.perf_counter()
            time.sleep(MEASURED_S)
            spent = time.perf_counter() - begin
            share = {pid: (cpu_s(pid) - before) / spent * 100 for pid, before in used.items()}
        more = {"nodes": NODES, "jobs": JOBS, "pages": PAGES}
        say("page-server-cpu", share[web], "% of a core", 3.0, higher=False, **more)
        browsers = sum(value for pid, value in share.items() if pid not in (controller, web))
        say("page-browser-cpu", browsers, "% of a core", 20.0, higher=False, **more)
        say("page-controller-cpu", share[controller], "% of a core", **more)
        measure_large(place, first)
        first.context.close()
        assert not first.errors, first.errors


def measure_large(place: Site, visitor: Visitor) -> None:
    """What is large: an array, and a graph."""
    job = place.client.submit({"command": ["x"], "array": TASKS, "request": {"cpu": 64}, "hold": True})
    begin = time.perf_counter()
    visitor.page.goto(f"{visitor.origin}/jobs/{job.id}/tasks")
    visitor.page.wait_for_selector(".grid-of-tasks canvas[style*=height]")
    say("page-array-ready", time.perf_counter() - begin, "s", 2.0, higher=False, tasks=TASKS)
    jobs = place.client.submit(pipeline(WIDTH))
    begin = time.perf_counter()
    visitor.page.goto(f"{visitor.origin}/jobs/{jobs[0].id}/graph")
    visitor.page.wait_for_selector(".dag .many")
    say("page-graph-ready", time.perf_counter() - begin, "s", higher=False, jobs=len(jobs))


def main() -> int:
    if not Path(CHROMIUM).exists():
        print("needs chromium")
        return SKIPPED
    home = Path(tempfile.mkdtemp(prefix="hal-b-", dir="/tmp"))
    try:
        with site(home, nodes=NODES, jobs=JOBS, port=free_port(), collector=True) as place:
            time.sleep(WARM_S)
            measure(place)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
