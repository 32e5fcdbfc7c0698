"""Jobs that wait for jobs, in the languages of drawing tools."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.cli.jobs import dependency_graph
from hal.cli.jobs.dependency_graph import MAX_DRAWN, Arrow, Box, Graph, dot_of, mermaid_of
from hal.core.model import TaskState
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]

GRAPH = Graph(
    {"1": Box("1", 'a"b\\c', "succeeded"), "2": Box("2", "#<x>&`", "running"), "3": Box("3", "last", "odd")},
    (Arrow("1", "3", "afterany", alternative=True), Arrow("2", "3", "afterok")),
)
DOT = r"""digraph jobs {
  rankdir=LR;
  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];
  edge [fontname="sans-serif", fontsize=9];
  "1" [label="1 a\"b\\c\nsucceeded", fillcolor="#dbeafe"];
  "2" [label="2 #<x>&`\nrunning", fillcolor="#bbf7d0"];
  "3" [label="3 last\nodd", fillcolor="#ffffff", penwidth=2];
  "1" -> "3" [label="afterany", style=dashed];
  "2" -> "3";
}
"""
MERMAID = """flowchart LR
  job0["1 a#quot;b\\c<br/>succeeded"]
  style job0 fill:#dbeafe
  job1["2 #35;#lt;x#gt;#amp;#96;<br/>running"]
  style job1 fill:#bbf7d0
  job2["3 last<br/>odd"]
  style job2 fill:#ffffff,stroke-width:3px
  job0 -.->|"afterany"| job2
  job1 --> job2
"""


def test_dot_quotes_names_and_marks_the_job_alternatives_and_kinds() -> None:
    """Quotes and backslashes are escaped, an alternative is dashed, another kind than afterok is written."""
    assert dot_of(GRAPH, "3") == DOT


def test_mermaid_writes_what_it_would_read_itself_as_entities() -> None:
    """Quotes, angle brackets, hashes and backquotes of a name are letters."""
    assert mermaid_of(GRAPH, "3") == MERMAID


def test_both_say_that_jobs_farther_away_were_left_out() -> None:
    """The bound is in the drawing."""
    cut = Graph(GRAPH.boxes, GRAPH.arrows, truncated=True)
    assert f'  label="the nearest {MAX_DRAWN} jobs";\n}}\n' in dot_of(cut, "3")
    assert mermaid_of(cut, "3").endswith(f"  %% the nearest {MAX_DRAWN} jobs\n")


@pytest.mark.parametrize("state", list(TaskState))
def test_every_state_has_a_colour(state: TaskState) -> None:
    """White is for states of a newer controller."""
    assert dependency_graph._FILL[state.value] != dependency_graph._OTHER_FILL


def test_the_nearest_jobs_are_gathered_up_to_a_bound(serve: Serve, hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three: the job itself and the one that it waits for; the drawing says so."""
    monkeypatch.setattr(dependency_graph, "MAX_DRAWN", 2)
    serve(jobs)
    out = hal("graph", "2", "--mermaid").out
    assert ("1 prepare" in out, "2 fit" in out, "3 report" in out) == (True, True, False)
    assert "%% the nearest 2 jobs" in out
    monkeypatch.setattr(dependency_graph, "MAX_DRAWN", 3)
    assert "%%" not in hal("graph", "2", "--mermaid").out


JOBS = {
    "1": {"id": "1", "name": "prepare", "state": "succeeded", "dependants": ["2"]},
    "2": {"id": "2", "name": "fit", "state": "running", "spec": {"dependencies": [{"job": "1"}]}, "dependants": ["3"]},
    "3": {"id": "3", "name": "report", "state": "pending", "spec": {"dependencies": [{"job": "2"}]}},
}


def jobs(asked: Asked) -> Reply:
    """Three jobs in a row."""
    return as_json(JOBS[asked.path.rpartition("/")[2]])


def test_graph_draws_what_a_job_waits_for_and_what_waits_for_it(serve: Serve, hal: Hal) -> None:
    """Two trees of text; `hal show --graph` is its old spelling."""
    serve(jobs)
    expected = "2 fit: running\nwaits for\n└─ afterok 1 prepare: succeeded\nis waited for by\n└─ 3 report: pending\n"
    assert hal("graph", "2") == (0, expected, "")
    assert hal("show", "2", "--graph") == (0, expected, "")


def test_a_graph_asks_for_dependants_that_have_ended(serve: Serve, hal: Hal) -> None:
    """Of each job that it draws: a workflow is whole from any of its jobs, also when it is over."""
    server = serve(jobs)
    hal("graph", "2", "--dot")
    drawn = {asked.path for asked in server.asked if asked.query.get("all_dependants")}
    assert drawn == {f"/v1/jobs/{job}" for job in JOBS}


@pytest.mark.parametrize("language", ["dot", "mermaid"])
def test_graph_prints_all_jobs_around_one_for_a_drawing_tool(language: str, serve: Serve, hal: Hal) -> None:
    """Every job once, with an arrow for each dependency."""
    serve(jobs)
    ran = hal("graph", "2", f"--{language}")
    assert (ran.code, ran.err) == (0, "")
    assert all(ran.out.count(text) == 1 for text in ("1 prepare", "2 fit", "3 report"))
    assert ran.out.count("->" if language == "dot" else "-->") == 2


def test_a_drawing_has_one_form_only(serve: Serve, hal: Hal) -> None:
    """DOT is not JSON."""
    serve(jobs)
    ran = hal("graph", "2", "--dot", "--json")
    assert (ran.code, "--dot cannot be combined" in ran.err) == (2, True)


def test_tasks_have_no_graph_of_their_own(hal: Hal) -> None:
    """The error names the command for the job."""
    ran = hal("graph", "2.1")
    assert (ran.code, "hal graph 2" in ran.err) == (2, True)


def test_svg_without_graphviz_names_what_needs_no_installation(
    serve: Serve, hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hal show --svg` is the old spelling; nothing is written."""
    serve(jobs)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = hal("show", "2", "--svg", tmp_path / "two.svg")
    assert ran.code == 2
    assert "Graphviz" in ran.err
    assert "hal graph 2 --mermaid" in ran.err
    assert not (tmp_path / "two.svg").exists()


def test_svg_is_what_graphviz_draws(serve: Serve, hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dot -Tsvg` gets the graph in DOT, and its output is the file."""
    serve(jobs)
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\necho "drawn with $1"; cat\n')
    dot.chmod(dot.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert hal("show", "2", "--svg", tmp_path / "two.svg").code == 0
    assert (tmp_path / "two.svg").read_text().startswith("drawn with -Tsvg\ndigraph jobs {")
