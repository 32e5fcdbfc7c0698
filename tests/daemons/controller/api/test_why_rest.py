"""`/why` on a running controller: the smallest change that helps is told, and when it is made the job starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from hal.core.engine.policies import register
from hal.core.interfaces import DomainView, Gang, NodeView, PolicyInfo
from hal.core.model.topology.files import topology_from_text
from hal.daemons.controller.config import read_config
from tests.daemons.controller.api.test_policy_rest import SLEEP
from tests.daemons.controller.running import Running, on_controller

TWO_QUEUES = """
[queues.default]
[queues.short]
max_walltime = "30m"
[queues.late]
priority = 5
users = ["bob"]
[limits.one]
queue = "default"
running = 1
"""


async def told(hal: Running, job: str) -> dict[str, Any]:
    """What keeps a job, once the engine has looked at it."""
    answer: dict[str, Any] = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
    return answer


def test_another_queue_is_told_and_lets_the_job_start(hal_home: Path) -> None:
    """Its own queue runs one task at once; `late` is not for alice; a job too long for `short` is told nothing."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(cpu_milli=4_000)
        await hal.submit({**SLEEP, "user": "alice"})
        await agent.until(lambda a: len(a.running) == 1)
        (job, long) = await hal.submit(
            {**SLEEP, "user": "alice", "walltime": "10m"}, {**SLEEP, "user": "alice", "walltime": "2h"}
        )
        why = await told(hal, job)
        assert (why["reason"], why["sooner"]) == ("limit", [{"field": "queue", "value": "short"}])
        assert why["helps"] == [f"hal update {job} --queue short   # it would start now"]
        other = await told(hal, long)
        assert (other["sooner"], other["starts_at_ms"]) == ([], None)  # what runs has no walltime
        assert (await hal.http.patch(f"/v1/jobs/{job}", json={"queue": "short"})).status_code == 200
        await agent.until(lambda a: len(a.running) == 2)

    on_controller(hal_home, body, read_config(TWO_QUEUES))


def test_a_walltime_and_a_node_count_are_told(hal_home: Path) -> None:
    """One of three nodes is busy for an hour, and all are promised: two nodes would do; so would ending by then."""

    async def body(hal: Running) -> None:
        agents = [await hal.agent(name, cpu_milli=2_000) for name in ("n1", "n2", "n3")]
        await hal.submit({**SLEEP, "request": {"cpu": 2}, "walltime": "1h"})
        await hal.until(lambda: any(agent.running for agent in agents))
        gang, long = await hal.submit(
            {**SLEEP, "request": {"cpu": 2}, "nodes": 3, "walltime": "1h"},
            {**SLEEP, "request": {"cpu": 2}, "walltime": "9h"},
        )
        why = await told(hal, gang)
        assert why["sooner"] == [{"field": "nodes", "value": "2"}]
        assert (why["position"], why["basis"]) == (0, "reservation")
        assert why["forecast_at_ms"] <= why["starts_at_ms"]
        why = await told(hal, long)
        (change,) = why["sooner"]
        assert (why["reason"], why["position"], change["field"]) == ("priority", 1, "walltime")
        answer = await hal.http.patch(f"/v1/jobs/{long}", json={"walltime": change["value"]})
        assert answer.status_code == 200, answer.text
        await hal.until(lambda: sum(len(agent.running) for agent in agents) == 2)

    on_controller(hal_home, body)


def test_the_best_nodes_are_told_until_one_is_chosen(hal_home: Path) -> None:
    """Of two cores one is left where the first job runs, which fits exactly; a limit keeps the second job waiting."""

    async def body(hal: Running) -> None:
        agents = [await hal.agent(name, cpu_milli=cores) for name, cores in (("n1", 4_000), ("n2", 2_000))]
        first, job = await hal.submit(*({**SLEEP, "request": {"cpu": 1}} for _ in range(2)))
        await hal.until(lambda: any(agent.running for agent in agents))
        found = (await hal.http.get(f"/v1/jobs/{job}/scores")).json()
        assert (found["placement"], found["fits"]) == ("best-fit", 2)
        assert [(one["node"], one["score"]) for one in found["nodes"]] == [("n2", 1.0), ("n1", 0.25)]
        assert found["nodes"][1]["terms"]["least-loaded"] == 0.875  # of its cores 0.75, and all its memory
        best = (await hal.http.get(f"/v1/jobs/{job}/scores?limit=1")).json()["nodes"]
        assert [one["node"] for one in best] == ["n2"]
        assert (await hal.http.get(f"/v1/jobs/{job}/scores?limit=0")).status_code == 400
        late = await hal.http.get(f"/v1/jobs/{first}/scores")
        assert (late.status_code, "no task that waits" in late.text) == (409, True)

    on_controller(
        hal_home, body, read_config('[engine]\nplacement = "best-fit"\n[limits.one]\nrunning = 1\nuser = "*"')
    )


class Quiet:
    """Domains in which few nodes are in use by other gangs."""

    info = PolicyInfo("test-quiet-rest", "domain-score/1")

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> Any:
        return 1.0 - domains.gang_nodes / np.maximum(domains.nodes, 1)


def test_the_best_domains_for_a_gang_are_told_where_a_policy_scores_them(hal_home: Path) -> None:
    """A pair is in r1; a limit keeps the next one waiting, which would go to r2, where it would be alone."""
    register(Quiet())
    config = read_config('[engine]\ndomains = "test-quiet-rest"\n[limits.one]\nrunning = 1\nuser = "*"')
    site = 'levels = ["rack"]\n[nodes]\n"n[1-2]" = "r1"\n"n[3-4]" = "r2"\n'
    config = replace(config, topology=topology_from_text(site, "site.toml"))

    async def body(hal: Running) -> None:
        agents = [await hal.agent(f"n{at}", cpu_milli=2_000) for at in range(1, 5)]
        pair = {**SLEEP, "request": {"cpu": 1}, "nodes": 2}
        _first, job = await hal.submit(pair, pair)
        await hal.until(lambda: sum(len(agent.running) for agent in agents) == 2)
        found = (await hal.http.get(f"/v1/jobs/{job}/scores")).json()
        assert found["domains"] == [
            {"domain": "r2", "level": "rack", "score": 1.0, "fits": 2},
            {"domain": "r1", "level": "rack", "score": 0.0, "fits": 2},
        ]
        best = (await hal.http.get(f"/v1/jobs/{job}/scores?limit=1")).json()["domains"]
        assert [one["domain"] for one in best] == ["r2"]

    on_controller(hal_home, body, config)
