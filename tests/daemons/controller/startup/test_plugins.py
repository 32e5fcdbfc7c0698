"""Policies of other distributions: found by entry point, checked at load, chosen by name, obeyed by the engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.core.engine.applying import apply
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.cycling import cycle
from hal.core.engine.errors import EngineError
from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.policies import register
from hal.core.engine.rules.configuration import new_state
from hal.core.interfaces import PolicyInfo
from hal.core.model import JobSpec, SpecError
from hal.daemons.controller.config import read_config
from hal.daemons.controller.startup.plugins import load_policies
from tests.core.engine.plugins.failing_policy import ENDLESS, RunsOut
from tests.daemons.controller.running import Running, on_controller

ANOTHER_QUEUE = {"op": "put", "kind": "queue", "name": "later", "entry": {}}
Install = Callable[[str, str], None]

LAST_NODE = """
import numpy as np
from hal.core.interfaces import PolicyInfo

class LastRow:
    info = PolicyInfo(name="last-row", interface="score/1", reads_free=True)

    def score(self, request, view):
        return np.arange(view.rows, dtype=np.float32) / max(view.rows, 1)

class Newest:
    info = PolicyInfo(name="newest", interface="order/2")

    def key(self, jobs, view):
        return -jobs.job

    def offset(self, buckets, view, now_ms):
        return np.zeros(len(buckets.class_id), np.int64)

class NotTheFirstRow:
    info = PolicyInfo(name="not-the-first-row", interface="filter/1")

    def mask(self, request, view):
        return np.arange(view.rows) > 0

class FromTheFuture:
    info = PolicyInfo(name="future", interface="score/9")

class PricedTomorrow:
    info = PolicyInfo(name="priced", interface="preempt/2")

class Hides:
    info = PolicyInfo(name="best-fit", interface="score/1")

class Nameless:
    pass

class Twice:
    info = PolicyInfo(name="last-row", interface="score/1")

    def score(self, request, view):
        return np.zeros(view.rows, np.float32)

class NoMethod:
    info = PolicyInfo(name="empty", interface="admit/1")

class Unsaid:
    info = "score/1"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a distribution `acme` 1.0 with one module and these entry points importable."""

    def installed(module: str, entries: str) -> None:
        (tmp_path / f"{module}.py").write_text(LAST_NODE)
        info = tmp_path / "acme-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hal.policies]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)

    return installed


def started(config: EngineConfig) -> list[tuple[int, str]]:
    """(job, node) of what starts when jobs 1 and 2, one core each, meet three nodes of two cores."""
    state = new_state(config)
    apply(state, NodesChanged(tuple(NodeSpec(name, {"cpu": 2000}) for name in ("a", "b", "c"))))
    rows = submit_rows(2)
    rows["job"] = (1, 2)
    apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1000}),)))
    plan = cycle(state, 0)
    return [(int(start["job"]), state.node_name(int(plan.rows[start["row_offset"]]))) for start in plan.starts]


def test_an_installed_policy_is_loaded_and_obeyed(install: Install) -> None:
    """Newest first, on the last row; and, with the filter and first-fit, never on the first."""
    install("acme_good", "a = acme_good:LastRow\nb = acme_good:Newest\nc = acme_good:NotTheFirstRow")
    assert load_policies() == ("last-row", "newest", "not-the-first-row")
    assert started(EngineConfig(order="newest", placement="last-row")) == [(2, "c"), (1, "c")]
    assert started(EngineConfig(filters=("not-the-first-row",))) == [(1, "b"), (2, "b")]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("acme_bad:FromTheFuture", r"'score/9'; this engine has .*score/1"),
        ("acme_bad:PricedTomorrow", r"written for interface 'preempt/2'; this engine has .*preempt/1"),
        ("acme_bad:NoMethod", r"has no check\(\)"),
        ("acme_bad:Unsaid", "is a PolicyInfo, not 'score/1'"),
        ("acme_bad:Hides", "another name"),
        ("acme_bad:Nameless", "no `info`"),
        ("acme_bad:Missing", "cannot be loaded"),
        ("acme_nowhere:LastRow", "cannot be loaded"),
    ],
)
def test_a_policy_that_cannot_be_used_stops_the_start(entry: str, says: str, install: Install) -> None:
    """The error names the entry point and the distribution that brought it."""
    install("acme_bad", f"mine = {entry}")
    with pytest.raises(SpecError, match=r"policy 'mine' .* of acme 1\.0") as caught:
        load_policies()
    assert re.search(says, str(caught.value))


def test_two_policies_of_one_name_stop_the_start(install: Install) -> None:
    """hal.toml could not tell them apart; the error names both."""
    install("acme_two", "a = acme_two:LastRow\nb = acme_two:Twice")
    with pytest.raises(SpecError, match=r"'b' .*acme_two:Twice.*'a' .*acme_two:LastRow.* both called 'last-row'"):
        load_policies()


def test_a_price_that_is_not_there_stops_the_start(hal_home: Path) -> None:
    """The error names the setting and what there is."""

    async def body(hal: Running) -> None:
        raise AssertionError("it started")

    with pytest.raises(
        EngineError, match=r"\[engine\] preempt: no policy 'acme' for preempt/1: known are .*least-lost"
    ):
        on_controller(hal_home, body, read_config('[engine]\npreempt = "acme"'))


def test_a_rule_for_submissions_that_is_not_there_stops_the_start(hal_home: Path) -> None:
    """The error names the setting and what there is."""

    async def body(hal: Running) -> None:
        raise AssertionError("it started")

    with pytest.raises(EngineError, match=r"\[engine\] admit: no policy 'acme-rules' for admit/1"):
        on_controller(hal_home, body, read_config('[engine]\nadmit = ["acme-rules"]'))


@pytest.mark.parametrize(
    ("interface", "setting", "instead"),
    [
        ("order/2", 'order = "forgetful"', "jobs are ordered by HAL itself"),
        ("score/1", 'placement = "forgetful"', "nodes are chosen first-fit"),
        ("filter/1", 'filters = ["forgetful"]', "its last results stay in force, and it admits nothing new"),
        ("preempt/1", 'preempt = "forgetful"', "attempts that lose the least are preempted first"),
    ],
)
def test_a_policy_that_fails_while_hal_runs_ends_nothing(
    interface: str, setting: str, instead: str, hal_home: Path
) -> None:
    """Told once in the log, with the line that raised, and by `hal status`; jobs come, run and end as before; a change
    of policy asks it again."""
    forgetful = RunsOut("forgetful", interface, most_cpu=2_000)
    register(forgetful)
    text = f"[engine]\n{setting}\n"
    text += '[qos.low]\npreempt_mode = "requeue"\n[qos.urgent]\npriority = 10\npreempts = ["low"]\n'

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", cpu_milli=2_000)
        quick, low = {"command": ["exit", "0"], "request": {"cpu": 2}}, {"command": ["sleep"], "request": {"cpu": 2}}
        (first,) = await hal.submit(quick)
        assert (await hal.ended(first))["state"] == "succeeded"
        assert hal.api.status.health().warnings == []
        forgetful.left = 0
        await hal.submit({**low, "qos": "low"})
        await agent.until(lambda agent: len(agent.started) == 2)
        (urgent,) = await hal.submit({**quick, "qos": "urgent"})
        assert (await hal.ended(urgent))["state"] == "succeeded"
        await hal.submit({**quick, "request": {"cpu": 1}})  # of another kind: whoever is asked once a kind is asked
        await hal.until(lambda: hal.api.status.health().warnings != [])
        (warning,) = hal.api.status.health().warnings
        assert "'forgetful': " in warning
        assert "raised RuntimeError: out of answers (at " in warning
        assert warning.endswith(f": {instead} until the policy is changed or HAL is started again (failed once)")
        log = hal.runtime.paths.log_file("controller").read_text()
        assert log.count("a policy failed and is not asked any more") == 1
        forgetful.left = ENDLESS
        changed = await hal.http.patch("/v1/policy", json={"operations": [ANOTHER_QUEUE]})
        assert changed.status_code == 200, changed.text
        await hal.until(lambda: hal.api.status.health().warnings == [])

    on_controller(hal_home, body, read_config(text))


class Broken:
    """A rule that forgot that jobs need no GPU."""

    info = PolicyInfo(name="broken", interface="admit/1")

    def check(self, spec: JobSpec) -> JobSpec:
        return replace(spec, nodes=spec.request["gpu"] // 1_000)


def test_a_rule_that_fails_refuses_the_submission_and_nothing_else(hal_home: Path) -> None:
    """One problem document that names it, a line in the log, and the controller goes on."""
    register(Broken())

    async def body(hal: Running) -> None:
        gpu = {"command": ["true"], "request": {"cpu": 1, "gpu": 1}}
        refused = await hal.http.post("/v1/jobs", json={"jobs": [gpu, {"command": ["true"]}]})
        told = refused.json()
        assert (refused.status_code, told["code"]) == (500, "internal")
        assert "job 2 of 2: rule 'broken' of this site failed (KeyError: 'gpu', at " in told["detail"]
        assert "rule 'broken' of this site failed" in hal.runtime.paths.log_file("controller").read_text()
        assert await hal.submit(gpu) == ["1"]

    on_controller(hal_home, body, read_config('[engine]\nadmit = ["broken"]'))
