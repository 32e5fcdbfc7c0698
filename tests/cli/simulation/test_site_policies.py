"""`hal simulate --config`: a log under the policy of a hal.toml: shares, limits, refusals, names, several files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hal.cli.main import main
from hal.client.rest.policy_views import PolicyInfo
from hal.core.model import to_plain
from hal.core.model.text import yaml_from_plain

ROOT = Path(__file__).resolve().parents[3]

THREE = """
[accounts.one]
weight = 1
[accounts.two]
weight = 2
[accounts.five]
weight = 5
[fairshare]
half_life = "1000s"
"""


def job_line(number: int, submit: int, run: int, procs: int, user: int = -1, group: int = -1, queue: int = -1) -> str:
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 {user} {group} -1 {queue} -1 -1 -1\n"


def write_log(directory: Path, lines: list[str], header: str = "; MaxProcs: 4\n") -> str:
    path = directory / "some.swf"
    path.write_text(header + "".join(lines))
    return str(path)


def write_config(directory: Path, text: str, name: str = "hal.toml") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["simulate", "--json", *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert isinstance(printed, list)
    return printed


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """A machine of 4; groups 1 (`heavy`) and 2 submit six jobs of a minute each at once, in queues 0 and 1."""
    lines = [job_line(n, 0, 60, 2, user=n % 2, group=1 + n % 2, queue=n % 2) for n in range(1, 13)]
    return write_log(tmp_path, lines, "; MaxProcs: 4\n; Group: 1 heavy\n; Queue: 0 short\n; Queue: 1 long\n")


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delivered_shares_are_as_promised_after_ten_half_lives(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three accounts 1:2:5 with work without end, jobs of a hundredth of the half-life: each within 2 % of its part."""
    log = write_log(tmp_path, [job_line(n, 0, 10, 1) for n in range(1, 9_001)])
    config = write_config(tmp_path, THREE)
    (run,) = figures(capsys, log, "--config", config, "--until", "10000s")
    parties = {party["name"]: party for party in run["accounts"]}
    assert {name: party["target"] for name, party in parties.items()} == pytest.approx(
        {"one": 1 / 8, "two": 2 / 8, "five": 5 / 8}
    )
    assert all(party["waiting"] > 0 for party in parties.values())
    for name, target in (("one", 1 / 8), ("two", 2 / 8), ("five", 5 / 8)):
        assert parties[name]["delivered"] == pytest.approx(target, abs=0.02), name
    assert run["utilisation"] == pytest.approx(1.0)


def test_two_files_are_compared_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str) -> None:
    """The same people under both; what was the heavy group's becomes the other's when the weights say so."""
    weights = "[accounts.heavy]\nweight = {}\n[accounts.g2]\nweight = {}\n"
    files = [write_config(tmp_path, weights.format(*w), f"{w[0]}-{w[1]}.toml") for w in ((9, 1), (1, 9))]
    before, after = figures(capsys, pairs, "--config", files[0], "--config", files[1])
    assert (before["policy"], after["policy"]) == ("9-1", "1-9")
    waits = [{party["name"]: party["mean_wait_s"] for party in run["accounts"]} for run in (before, after)]
    assert waits[0]["heavy"] < waits[0]["g2"]
    assert waits[1]["heavy"] > waits[1]["g2"]
    assert [run["started"] for run in (before, after)] == [12, 12]


def test_a_file_and_built_in_policies_are_compared_under_one_roof(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str
) -> None:
    """The file lets one job run at once; built-in policies limit nobody, and say how they decide."""
    limited = write_config(tmp_path, '[accounts.heavy]\n[accounts.g2]\n[limits.x]\nqueue = "default"\nrunning = 1\n')
    fcfs, site, none = figures(capsys, pairs, "--queue", "default", "--policy", "fcfs", "--policy", f"{limited},none")
    assert [one["policy"] for one in (fcfs, site, none)] == ["fcfs", "hal", "none"]
    assert fcfs["decides"] == "order fcfs, backfill none"
    assert site["decides"] == "order priority, backfill easy"
    assert fcfs["mean_wait_s"] == none["mean_wait_s"] < site["mean_wait_s"]
    bare, _ = figures(capsys, pairs, "--policy", "fcfs,easy")
    assert bare["mean_wait_s"] == fcfs["mean_wait_s"]


def test_a_file_called_like_a_built_in_policy_goes_by_its_whole_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str
) -> None:
    """So that no table or file of jobs takes one for the other."""
    path = write_config(tmp_path, "", "easy.toml")
    names = ("--queue", "default", "--policy", f"easy,{path}", "--out-jobs", str(tmp_path / "j.csv"))
    ran = figures(capsys, pairs, *names)
    assert [one["policy"] for one in ran] == ["easy", path]
    assert len(list(tmp_path.glob("j-*.csv"))) == 2


def test_the_tables_show_accounts_below_one_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str
) -> None:
    """One line for each account and file; users too when they are asked for."""
    files = [write_config(tmp_path, "", name) for name in ("today.toml", "tomorrow.toml")]
    assert main(["simulate", pairs, "--config", files[0], "--config", files[1], "--by-user"]) == 0
    out, err = capsys.readouterr()
    assert "delivered" in out
    assert [line.split()[:2] for line in out.splitlines() if "heavy" in line] == [["heavy", "today"]]
    assert sum("tomorrow" in line for line in out.splitlines()) == 1 + 1 + 2 + 2
    assert "the log has 2 queues, and no --config has any" in err


# ── what the policy refuses, and what never starts ────────────────────────────────────────────────────────────────────


def test_jobs_that_the_policy_refuses_are_counted_with_an_example(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Admission is the controller's: too long for the queue, too many that wait."""
    lines = [job_line(n, 0, 600 if n == 3 else 60, 4, user=1) for n in range(1, 7)]
    config = write_config(tmp_path, '[queues.default]\nmax_walltime = "5m"\n[limits.few]\nuser = "*"\npending = 3\n')
    (run,) = figures(capsys, write_log(tmp_path, lines), "--config", config, "--check")
    reasons = {reason["what"]: reason["jobs"] for reason in run["refused_reasons"]}
    assert reasons == {"walltime": 1, "pending": 2}
    assert (run["jobs"], run["started"], run["refused"], run["waiting"]) == (6, 3, 3, 0)
    assert "queue 'default' allows" in run["refused_reasons"][0]["example"]


def test_limits_hold_and_what_never_starts_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two of four processors at most, checked after every slice by a count beside the engine's; three never fit."""
    lines = [job_line(1, 0, 10, 2), job_line(2, 0, 10, 1), job_line(3, 0, 10, 3), job_line(4, 1, 10, 1)]
    config = write_config(tmp_path, '[limits.half]\nuser = "*"\nresources = { cpu = 2 }\nrunning = 2\n')
    (run,) = figures(capsys, write_log(tmp_path, lines), "--config", config, "--check")
    assert (run["started"], run["refused"], run["refused_reasons"][0]["what"]) == (3, 1, "limit")
    assert run["makespan_s"] == 20


BOTH = ["# both", '[limits.half]\nuser = "*"\nresources = { cpu = 2 }\n']


def test_figures_over_different_jobs_are_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Job 2 takes 3 processors, which one policy refuses: without it nobody waits there; with it, jobs 3 and 4 do."""
    lines = [job_line(1, 0, 10, 1), job_line(2, 0, 10, 3), job_line(3, 0, 10, 1), job_line(4, 0, 10, 1)]
    log = write_log(tmp_path, lines)
    configs = [write_config(tmp_path, text, f"{name}.toml") for name, text in zip("ab", BOTH, strict=True)]
    files = [part for file in configs for part in ("--config", file)]
    today, change = figures(capsys, log, *files)
    assert (today["mean_wait_s"], change["mean_wait_s"]) == (5.0, 10 / 3)
    assert [run["started_elsewhere_only"] for run in (today, change)] == [0, 1]
    assert [run["of_jobs_started_in_all"]["mean_wait_s"] for run in (today, change)] == [20 / 3, 10 / 3]
    plot = tmp_path / "shares.svg"
    assert main(["simulate", log, *files, "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"wait, mean +5s\* +3s\*", out)
    assert "jobs that started elsewhere only, by policy: b 1. Compare the figures of the 3 jobs" in out
    assert "1 jobs that started elsewhere did not" in plot.read_text()


@pytest.mark.slow
def test_hours_of_a_queue_go_by_the_logs_own_calendar(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Second 0 is Thursday 12:00 UTC of UnixStartTime; the queue opens at 18:00."""
    header = "; MaxProcs: 4\n; UnixStartTime: 43200\n"
    config = write_config(tmp_path, '[queues.default]\nhours = ["18:00-24:00"]\n')
    log = write_log(tmp_path, [job_line(1, 0, 10, 1), job_line(2, 5, 10, 4)], header)
    (run,) = figures(capsys, log, "--config", config, "--check")
    assert run["max_wait_s"] == 6 * 3600 + 10 - 5


# ── whose the jobs are ────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_come_from_the_header_and_the_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str
) -> None:
    """Group 1 is `heavy` as the header says, group 2 is g2; queues that a file declares are those of the log."""
    config = write_config(tmp_path, "[queues.short]\n[queues.long]\npriority = 1000\n")
    target = tmp_path / "jobs.csv"
    (run,) = figures(capsys, pairs, "--config", config, "--out-jobs", str(target))
    assert {party["name"] for party in run["accounts"]} == {"heavy", "g2"}
    jobs = list(csv.DictReader(io.StringIO(target.read_text())))
    assert [jobs[0][column] for column in ("id", "queue", "account", "user")] == ["1", "long", "g2", "u1"]
    assert {job["start"] for job in jobs if job["queue"] == "long"} == {"0", "60", "120"}


def test_made_up_accounts_are_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three parts of four for x; another seed deals otherwise."""
    log = write_log(tmp_path, [job_line(n, n, 60, 1) for n in range(1, 401)])
    config = write_config(tmp_path, "")
    options = (log, "--config", config, "--accounts", "x=3,y=1")
    first, again, other = (figures(capsys, *options, "--seed", seed)[0]["accounts"] for seed in ("1", "1", "2"))
    assert first == again != other
    assert {party["name"]: party["asked"] for party in first} == pytest.approx({"x": 0.75, "y": 0.25}, abs=0.05)


def test_users_of_a_log_stay_together_when_they_are_dealt_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Eight users alike, two accounts: four each, all jobs of a user in one account."""
    log = write_log(tmp_path, [job_line(n, n, 60, 1, user=n % 8) for n in range(1, 161)])
    target = tmp_path / "jobs.csv"
    config = write_config(tmp_path, "")
    (run,) = figures(capsys, log, "--config", config, "--accounts", "2", "--out-jobs", str(target))
    assert [party["jobs"] for party in run["accounts"]] == [80, 80]
    owners = {(job["user"], job["account"]) for job in csv.DictReader(io.StringIO(target.read_text()))}
    assert len(owners) == 8


# ── errors: one, and nothing half done ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("[accounts.physics]\n", (), "hal: account 'heavy' (and 1 more) is not declared"),
        ("[queues.lomg]\n", (), "queue 'short' (and 1 more) is not declared"),
        ("[queues.short]\n", ("--queue", "shrt"), "did you mean 'short'?"),
        ('users = ["ada"]\n', (), "hal: user 'u0' (and 1 more) is not declared"),
        ("[accounts.physics]\n", ("--accounts", "phisics=1"), "did you mean 'physics'?"),
        ("", ("--accounts", "policy"), "no account is declared"),
        ("", ("--accounts", "x=0"), "is not NAME=PART"),
        ("", ("--accounts", "0"), "from 1 to 10000 accounts"),
        ("", ("--until", "soon"), "--until"),
        ("", ("--policy", "esay"), "unknown policy 'esay' (did you mean easy?)"),
        ("[engine]\norder = 'nice'\n", (), "no policy 'nice'"),
        ("[engine]\nadmit = ['nobody']\n", (), "no policy 'nobody'"),
        ("[limits.x]\nspeed = 1\n", (), "speed"),
        ("this is not toml", (), "not TOML"),
    ],
)
def test_a_wrong_file_or_option_leaves_one_error_and_no_output(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str, config: str, options: tuple[str, ...], message: str
) -> None:
    """Told before anything is replayed; the picture and the table do not appear."""
    name = write_config(tmp_path, config)
    outputs = ("--plot", str(tmp_path / "p.svg"), "--out-jobs", str(tmp_path / "j.csv"))
    assert main(["simulate", pairs, "--config", name, *options, *outputs]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["hal.toml", "some.swf"]


def test_a_missing_config_ends_with_code_3(capsys: pytest.CaptureFixture[str], pairs: str) -> None:
    """As a missing log does."""
    assert main(["simulate", pairs, "--config", "nowhere.toml"]) == 3
    assert "file 'nowhere.toml' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--accounts", "3"), ("--queue", "x"), ("--until", "1d")])
def test_what_belongs_to_a_config_is_refused_without_one(
    capsys: pytest.CaptureFixture[str], pairs: str, option: tuple[str, str]
) -> None:
    """The plain policies know no accounts."""
    assert main(["simulate", pairs, *option]) == 2
    assert f"{option[0]} needs --config" in capsys.readouterr().err


# ── files of other kinds, pictures, the example ───────────────────────────────────────────────────────────────────────


def test_a_policy_as_the_command_line_prints_it_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pairs: str
) -> None:
    """`hal policy show --json` and `-o yaml`: a version of it, without its [engine]; or the policy in it alone."""
    accounts = {"accounts": {"heavy": {"weight": 3.0}, "g2": {}}}
    version = PolicyInfo(version=3, at_ms=5, user="ada", note="", policy=accounts)
    json_file = write_config(tmp_path, json.dumps(to_plain(version)), "today.json")
    yaml_file = write_config(tmp_path, yaml_from_plain(to_plain(version)), "today.yaml")
    alone = write_config(tmp_path, json.dumps(accounts), "alone.json")
    runs = figures(capsys, pairs, "--config", json_file, "--config", yaml_file, "--config", alone)
    assert [run["policy"] for run in runs] == ["today.json", "today.yaml", "alone.json"]
    assert runs[0]["accounts"] == runs[1]["accounts"] == runs[2]["accounts"]


def test_shares_over_time_are_drawn(tmp_path: Path, pairs: str) -> None:
    """The same bytes each time; two files of one name in two places are told apart."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    configs = [write_config(tmp_path / part, THREE.replace("one", "heavy").replace("two", "g2")) for part in "ab"]
    pictures = [tmp_path / name for name in ("one.svg", "two.svg")]
    for picture in pictures:
        assert main(["simulate", pairs, "--config", configs[0], "--config", configs[1], "--plot", str(picture)]) == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert f"{configs[1]}: shares of decayed use" in pictures[0].read_text()


@pytest.mark.slow
def test_the_example_of_a_change_of_policy_runs(tmp_path: Path) -> None:
    """examples/simulate/policy.sh, as docs/simulate.md names it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ROOT / "examples" / "simulate" / "policy.sh"
    done = subprocess.run(
        ["sh", str(script), str(tmp_path)], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    today, change = json.loads((tmp_path / "change.json").read_text())
    waits = [{party["name"]: party["mean_wait_s"] for party in run["accounts"]} for run in (today, change)]
    assert waits[1]["biology"] < waits[0]["biology"]
    assert "* over different jobs" in done.stdout
    assert (change["refused"], change["started_elsewhere_only"], today["same_jobs"]) == (31, 31, False)
    assert (tmp_path / "shares.svg").stat().st_size > 0
