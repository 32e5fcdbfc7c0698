"""`GET /v1/jobs/{job}/graph`: what comes before and after a job, and theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hal.daemons.controller.service.jobs import graph
from hal.planes.tasks import graph_of
from hal.planes.tasks.jobs import job_graph
from hal.store.job_links import JobLinks
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller


def edges(found: dict[str, Any]) -> set[tuple[int, int]]:
    """As ids: which comes first, which waits for it."""
    return {(found["ids"][a], found["ids"][b]) for a, b in zip(found["before"], found["after"], strict=True)}


@pytest.mark.parametrize("page", [2, 4_096])
def test_a_graph_has_all_that_is_connected_and_nothing_else(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """A diamond, whose end waits for one of two, and a job beside it; asked from both ends, in pages or at once."""
    monkeypatch.setattr(graph, "PAGE", page)

    async def body(hal: Running) -> None:
        first, other = await hal.submit({"command": ["/bin/a"]}), await hal.submit({"command": ["x"]})
        left = await hal.submit({"command": ["b"], "name": "left", "dependencies": [f"afterok:{first[0]}"]})
        right = await hal.submit({"command": ["b"], "name": "right", "dependencies": [f"afterany:{first[0]}"]})
        last = await hal.submit({"command": ["c"], "dependencies": [f"afterok:{left[0]} | afterok:{right[0]}"]})
        await hal.http.post("/v1/jobs/hold", json={"ids": [last[0]]})
        a, b, c, d = (int(one[0]) for one in (first, left, right, last))
        for asked in (a, d):
            found = (await hal.http.get(f"/v1/jobs/{asked}/graph")).json()
            assert (found["ids"][0], set(found["ids"])) == (asked, {a, b, c, d})
            assert edges(found) == {(a, b), (a, c), (b, d), (c, d)}
            named = {id_: found["names"][n] for id_, n in zip(found["ids"], found["name"], strict=True)}
            states = {id_: found["states"][n] for id_, n in zip(found["ids"], found["state"], strict=True)}
            assert (named, states[d], found["truncated"]) == ({a: "a", b: "left", c: "right", d: "c"}, "held", False)
        alone = (await hal.http.get(f"/v1/jobs/{other[0]}/graph")).json()
        assert (alone["ids"], edges(alone)) == ([int(other[0])], set())
        assert (await hal.http.get("/v1/jobs/99/graph")).status_code == 404

    on_controller(hal_home, body)


def test_a_graph_names_no_job_of_others(hal_home: Path) -> None:
    """Alice's job that waits for one of Bob's: her graph has hers alone, and his she does not see."""

    async def body(hal: Running) -> None:
        (his,) = await hal.submit({"command": ["x"], "user": "bob"})
        (hers,) = await hal.submit({"command": ["x"], "user": "alice", "dependencies": [f"afterany:{his}"]})
        async with person(hal, "alice") as alice:
            found = (await alice.get(f"/v1/jobs/{hers}/graph")).json()
            assert (found["ids"], found["before"]) == ([int(hers)], [])
            assert (await alice.get(f"/v1/jobs/{his}/graph")).status_code == 404

    on_controller(hal_home, body)


def test_of_too_many_jobs_the_nearest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of ten with room for four: from its middle, those beside it."""
    monkeypatch.setattr(job_graph, "MAX_JOBS", 4)
    chain = [JobLinks(n, f"j{n}", "pending", 1, (n - 1,) if n > 1 else ()) for n in range(1, 11)]
    found = graph_of(5, [chain])
    assert (set(found.ids), found.truncated) == ({3, 4, 5, 6}, True)
