"""`hal simulate`: its figures, files, and one clear error for whatever cannot be replayed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hal.cli.main import main
from hal.core.interfaces.policy import GROUP, BucketView, ClusterView, JobView, PolicyInfo
from hal.daemons.controller.startup import plugins
from tests.daemons.twin.oracle import oracle_starts


class NewestFirst:
    """An order as a package may bring one."""

    info = PolicyInfo(name="test-newest-first", interface="order/2")

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        """The newest job has the smallest key."""
        return -jobs.job

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        """None."""
        return np.zeros(buckets.owner_id.shape[0], np.int64)


ROOT = Path(__file__).resolve().parents[3]

# submit run processors limit user; a machine of 4. FCFS starts them at 0 100 150, EASY the third at 2.
JOBS = ((0, 100, 3, 100, 1), (1, 50, 4, 50, 2), (2, 98, 1, 98, 1))
FIGURES = (
    "policy", "clairvoyant", "jobs", "skipped", "mean_bounded_slowdown", "median_bounded_slowdown",
    "p95_bounded_slowdown", "max_bounded_slowdown", "mean_wait_s", "max_wait_s",
    "utilisation", "makespan_s", "replay_s",
)  # fmt: skip


def job_line(number: int, job: tuple[int, int, int, int, int]) -> str:
    submit, run, procs, limit, user = job
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {limit} -1 1 {user} -1 -1 1 -1 -1 -1\n"


TEXT = "; MaxProcs: 4\n" + "".join(job_line(number, job) for number, job in enumerate(JOBS, 1))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "three.swf"
    path.write_text(TEXT)
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["simulate", "--json", *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert isinstance(printed, list)
    return printed


def test_json_has_one_object_for_each_policy_in_the_order_given(capsys: pytest.CaptureFixture[str], log: str) -> None:
    """Waits under FCFS are 0 99 148, under EASY 0 99 0."""
    fcfs, easy = figures(capsys, log, "--policy", "fcfs,easy")
    assert (fcfs["policy"], easy["policy"]) == ("fcfs", "easy")
    for one in (fcfs, easy):
        assert set(FIGURES) <= one.keys()
        assert (one["jobs"], one["skipped"], one["clairvoyant"]) == (3, 0, False)
    assert (fcfs["mean_wait_s"], fcfs["max_wait_s"]) == (pytest.approx(247 / 3), 148)
    assert (easy["mean_wait_s"], easy["max_wait_s"]) == (33.0, 99)
    assert easy["mean_bounded_slowdown"] == pytest.approx((1 + 149 / 50 + 1) / 3)
    assert easy["utilisation"] == pytest.approx((300 + 200 + 98) / (4 * 150))
    assert (fcfs["makespan_s"], easy["makespan_s"]) == (248, 150)


def test_shortest_first_is_an_order_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three jobs behind one that fills the machine for 100 s: of 50, 30 and 10 s; shortest first they wait 140, 110 and
    100 s after second 0, less what they came later."""
    jobs = ((0, 100, 4, 100, 1), (1, 50, 4, 50, 1), (2, 30, 4, 30, 1), (3, 10, 4, 10, 1))
    path = tmp_path / "order.swf"
    path.write_text("; MaxProcs: 4\n" + "".join(job_line(number, job) for number, job in enumerate(jobs, 1)))
    fcfs, sjf = figures(capsys, str(path), "--policy", "none", "--policy", "sjf")
    assert sjf["decides"] == "order sjf, backfill easy"
    assert sjf["mean_wait_s"] == (0 + 139 + 108 + 97) / 4
    assert fcfs["mean_wait_s"] == (0 + 99 + 148 + 177) / 4


def test_an_installed_policy_is_named_like_a_built_in_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order of a package that takes the newest job first: of three that each need the whole machine the last one
    waits least."""
    jobs = ((0, 100, 4, 100, 1), (1, 50, 4, 50, 1), (2, 50, 4, 50, 1))
    path = tmp_path / "order.swf"
    path.write_text("; MaxProcs: 4\n" + "".join(job_line(number, job) for number, job in enumerate(jobs, 1)))
    entry = EntryPoint("site-order", f"{__name__}:NewestFirst", GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    target = tmp_path / "j.csv"
    _, mine = figures(capsys, str(path), "--policy", "easy,test-newest-first", "--out-jobs", str(target))
    assert mine["decides"] == "order test-newest-first, backfill easy"
    written = csv.DictReader(io.StringIO((tmp_path / "j-test-newest-first.csv").read_text()))
    assert [int(row["start"]) for row in written] == [0, 150, 100]


def test_by_user_adds_the_figures_of_each_user(capsys: pytest.CaptureFixture[str], log: str) -> None:
    """User 1 used 398 processor-seconds, user 2 200."""
    (easy,) = figures(capsys, log, "--policy", "easy", "--by-user")
    assert [(user["user"], user["jobs"], user["max_wait_s"]) for user in easy["users"]] == [(1, 2, 0), (2, 1, 99)]


def test_skipped_counts_bad_and_filtered_lines_and_says_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line of three columns, one job of five processors on four."""
    path = tmp_path / "odd.swf"
    path.write_text(TEXT + "1 2 3\n" + job_line(9, (5, 10, 5, 10, 1)))
    assert main(["simulate", "--json", str(path), "--policy", "easy"]) == 0
    out, err = capsys.readouterr()
    (easy,) = json.loads(out)
    assert (easy["jobs"], easy["skipped"]) == (3, 2)
    assert easy["skipped_reasons"] == {"bad line": 1, "more processors than the machine": 1}
    assert "1 bad line left out" in err
    assert "line 5: 3 columns where 18 are expected" in err


def test_the_table_names_policies_and_what_was_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """For people: no JSON, no colour codes when it is not a terminal."""
    path = tmp_path / "some.swf"
    path.write_text(TEXT + job_line(9, (5, 0, 1, 10, 1)))
    assert main(["simulate", str(path), "--policy", "fcfs,easy-sjbf", "--by-user", "--clairvoyant"]) == 0
    out = capsys.readouterr().out
    assert "some.swf: 3 jobs on 4 processors (one pool), clairvoyant" in out
    assert "easy-sjbf, clairvoyant, by user" in out
    assert "left out: 1 no run time" in out
    assert "\x1b" not in out


def test_out_jobs_writes_one_csv_for_one_policy(tmp_path: Path, log: str) -> None:
    """EASY starts the third job at 2."""
    path = tmp_path / "jobs.csv"
    assert main(["simulate", log, "--policy", "easy", "--out-jobs", str(path)]) == 0
    assert path.read_text().splitlines() == [
        "id,submit,start,end,procs",
        "1,0,0,100,3",
        "2,1,100,150,4",
        "3,2,2,100,1",
    ]


def test_out_jobs_writes_one_csv_for_each_of_several_policies(tmp_path: Path, log: str) -> None:
    """The policy is in the name; the name given is not written."""
    assert main(["simulate", log, "--policy", "fcfs,easy", "--out-jobs", str(tmp_path / "jobs.csv")]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["jobs-easy.csv", "jobs-fcfs.csv"]
    assert (tmp_path / "jobs-fcfs.csv").read_text().splitlines()[3] == "3,2,150,248,1"


def test_nodes_turn_jobs_into_gangs(capsys: pytest.CaptureFixture[str], log: str) -> None:
    """Four nodes of one processor start as the pool; on two nodes of two, 3 processors hold both nodes."""
    pool, gangs, two = (
        figures(capsys, log, "--policy", "easy", *more)[0]
        for more in ((), ("--nodes", "4", "--cpus-per-node", "1"), ("--nodes", "2", "--cpus-per-node", "2"))
    )
    assert gangs["mean_wait_s"] == pool["mean_wait_s"]
    assert two["mean_wait_s"] == pytest.approx((0 + 99 + 148) / 3)


def test_first_and_scaled_arrivals(capsys: pytest.CaptureFixture[str], log: str) -> None:
    """The first two jobs; with all submits on 0 the second waits 100 s."""
    (easy,) = figures(capsys, log, "--policy", "easy", "--first", "2", "--scale-arrivals", "0.1")
    assert (easy["jobs"], easy["max_wait_s"]) == (2, 100)


def test_a_plot_is_written_and_every_cycle_checked(tmp_path: Path, log: str) -> None:
    """With --check the whole state is verified after each cycle."""
    picture = tmp_path / "waits.svg"
    assert main(["simulate", log, "--policy", "fcfs,easy", "--check", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"<?xml")
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []


@pytest.mark.slow
def test_a_generated_log_is_read_from_standard_input(tmp_path: Path) -> None:
    """`hal workload generate | hal simulate -`, as two real processes."""
    hal = [sys.executable, "-m", "hal.cli.main"]
    made = subprocess.run(
        [*hal, "workload", "generate", "--jobs", "80", "--cpus", "16"], capture_output=True, check=True
    )
    replayed = subprocess.run(
        [*hal, "simulate", "-", "--policy", "easy", "--json"], input=made.stdout, capture_output=True, check=True
    )
    assert json.loads(replayed.stdout)[0]["jobs"] == 80


def test_starts_in_the_csv_are_those_of_the_oracle(tmp_path: Path) -> None:
    """The whole way, from a generated log to the table of starts, under every policy."""
    path = tmp_path / "made.swf.gz"
    assert main(["workload", "generate", "--jobs", "250", "--cpus", "32", "--load", "1", "-o", str(path)]) == 0
    policies = ("fcfs", "easy", "easy-sjbf", "top-2", "conservative")
    assert main(["simulate", str(path), "--policy", ",".join(policies), "--out-jobs", str(tmp_path / "j.csv")]) == 0
    rows = [line.split() for line in gzip.decompress(path.read_bytes()).decode().splitlines() if line[0] != ";"]
    submit, run, procs, limit = ([int(row[column]) for row in rows] for column in (1, 3, 7, 8))
    for policy in policies:
        written = list(csv.DictReader(io.StringIO((tmp_path / f"j-{policy}.csv").read_text())))
        starts = [int(row["start"]) for row in written]
        assert starts == oracle_starts(submit, run, limit, procs, 32, policy), policy


# ── what cannot be replayed ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "sjf2"], "valid are fcfs, none, easy, easy-sjbf, sjf, top-k, conservative, top-K with a number"),
        (["--policy", ",".join(f"top-{k}" for k in range(1, 22))], "21 policies; at most 20"),
        (["--policy", "top-0"], "unknown policy 'top-0'"),
        (["--policy", "top-1000000"], "unknown policy 'top-1000000'"),
        (["--policy", ""], "unknown policy ''"),
        (["--policy", "easy,"], "unknown policy ''"),
        (["--first", "0"], "--first"),
        (["--scale-arrivals", "0"], "positive"),
        (["--scale-arrivals", "-1"], "positive"),
        (["--scale-arrivals", "inf"], "positive"),
        (["--scale-arrivals", "nan"], "positive"),
        (["--scale-arrivals", "1e300"], "scale by less"),
        (["--nodes", "4"], "--nodes and --cpus-per-node belong together"),
        (["--nodes", "0", "--cpus-per-node", "4"], "--nodes"),
        (["--nodes", "1", "--cpus-per-node", "2"], "more processors than the machine"),
        (["--plot", "waits.bmp"], ".svg, .png, .pdf"),
        (["--plot", "/nowhere/at/all.svg"], "does not exist"),
        (["--out-jobs", "/nowhere/at/all.csv"], "does not exist"),
    ],
)
def test_a_wrong_argument_ends_with_code_2_and_says_what_is_right(
    capsys: pytest.CaptureFixture[str], log: str, arguments: list[str], message: str
) -> None:
    """One error, nothing on standard output."""
    first_two = "; MaxProcs: 4\n" + job_line(1, JOBS[0]) + job_line(2, JOBS[1])
    Path(log).write_text(first_two)
    assert main(["simulate", log, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (os.urandom(4096) + b"\0", "is not a text file"),
        (gzip.compress(TEXT.encode() * 500)[:-30], "is truncated"),
        (b"not a log\n", "no valid job line"),
        (TEXT.split("\n", 1)[1].encode(), "give --nodes and --cpus-per-node"),
    ],
)
def test_a_file_that_is_no_log_leaves_one_error_and_no_output(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str
) -> None:
    """Neither the CSV nor the picture appears."""
    path = tmp_path / "odd.swf.gz"
    path.write_bytes(content)
    code = main(
        ["simulate", str(path), "--out-jobs", str(tmp_path / "j.csv"), "--plot", str(tmp_path / "p.svg"), "--json"]
    )
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["odd.swf.gz"]


@pytest.mark.parametrize(("name", "code"), [("missing.swf", 3), ("", 2)])
def test_a_missing_file_ends_with_code_3_and_a_directory_with_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, code: int
) -> None:
    """As for every command; the message names it."""
    assert main(["simulate", str(tmp_path / name)]) == code
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.slow
def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    """examples/simulate/compare.sh, as docs/simulate.md and docs/workload.md name it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ROOT / "examples" / "simulate" / "compare.sh"
    done = subprocess.run(
        ["sh", str(script), str(tmp_path)], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = {entry.name for entry in tmp_path.iterdir()}
    tables = {f"demo-{policy}.csv" for policy in ("fcfs", "easy", "easy-sjbf", "conservative")}
    assert names == {"demo.swf.gz", "demo.svg", "nodes.json"} | tables
    (gangs,) = json.loads((tmp_path / "nodes.json").read_text())
    assert (gangs["jobs"], gangs["nodes"], gangs["cpus_per_node"]) == (600, 32, 8)


def test_help_names_no_option_that_chooses_a_hal(capsys: pytest.CaptureFixture[str]) -> None:
    """None is needed; `hal --home X simulate` works nevertheless."""
    assert main(["simulate", "-h"]) == 0
    out = capsys.readouterr().out
    assert [name for name in ("--home", "--url", "--plain") if name in out] == []


def test_help_loads_neither_numpy_nor_numba() -> None:
    """The parser alone answers --help."""
    probe = (
        "import sys; from hal.cli.main import main; main(['simulate', '--help']); "
        "sys.exit(any(m in sys.modules for m in ('numpy', 'numba', 'matplotlib', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0
