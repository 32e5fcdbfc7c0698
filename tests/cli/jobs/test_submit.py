"""`hal submit`: what files, options and commands become, and what every kind of bad input says."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json

Hal = Callable[..., Ran]


@pytest.fixture
def controller(serve: Serve) -> ScriptedServer:
    """Accepts everything: jobs 1, 2, …"""

    def answer(asked: Asked) -> Reply:
        return as_json({"ids": [str(n + 1) for n in range(len(asked.json["jobs"]))]}, 201)

    return serve(answer)


def sent(controller: ScriptedServer) -> list[dict[str, Any]]:
    """The specs of the last submission."""
    found: list[dict[str, Any]] = controller.asked[-1].json["jobs"]
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", 'name = "fit"\ncommand = ["sleep", "1"]\nwalltime = "90m"\n[request]\ncpu = 2\n'),
        ("a.yaml", "name: fit\ncommand: [sleep, '1']\nwalltime: 90m\nrequest: {cpu: 2}\n"),
        ("a.yml", "jobs:\n- {name: fit, command: [sleep, '1'], walltime: 5400, request: {cpu: 2}}\n"),
        ("a.json", '[{"name": "fit", "command": ["sleep", "1"], "walltime": "01:30:00", "request": {"cpu": "2"}}]'),
    ],
)
def test_the_same_job_in_every_format(
    name: str, text: str, tmp_path: Path, controller: ScriptedServer, hal: Hal
) -> None:
    """The suffix says which it is; one id a line is printed."""
    (tmp_path / name).write_text(text)
    assert hal("submit", tmp_path / name) == (0, "1\n", "")
    spec = sent(controller)[0]
    assert (spec["name"], spec["command"], spec["walltime"]) == ("fit", ["sleep", "1"], "1h30m")
    assert spec["request"] == {"cpu": "2"}


def test_a_job_runs_here_unless_its_file_names_a_place(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """It also sees the few variables that every job sees; its own win."""
    (tmp_path / "a.json").write_text('[{"command": ["a"], "env": {"HOME": "/h"}}, {"command": ["b"], "workdir": "/w"}]')
    hal("submit", tmp_path / "a.json")
    first, second = sent(controller)
    assert (first["workdir"], second["workdir"]) == (os.getcwd(), "/w")
    assert (first["env"]["HOME"], first["env"]["PATH"]) == ("/h", os.environ["PATH"])


def test_several_files_are_one_submission(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """All or none: one request."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"command": [name]}))
    assert hal("submit", tmp_path / "a.json", tmp_path / "b.json").out == "1\n2\n"
    assert len(controller.asked) == 1


def test_set_changes_fields_of_every_job(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """Values are TOML where they can be, else text; tables are made as needed."""
    (tmp_path / "a.toml").write_text('command = ["a"]\n')
    settings = (
        "--set",
        "request.cpu=0.5",
        "--set",
        "array=10",
        "--set",
        "name=x y".replace(" ", "-"),
        "--set",
        "hold=true",
    )
    hal("submit", tmp_path / "a.toml", *settings)
    spec = sent(controller)[0]
    assert (spec["request"], spec["array"], spec["name"], spec["hold"]) == ({"cpu": "0.5"}, {"count": 10}, "x-y", True)


def test_a_script_takes_the_options(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """Its first line makes it one; its file names the job."""
    (tmp_path / "train.sh").write_text("#!/bin/sh\necho hi\n")
    assert hal("submit", tmp_path / "train.sh", "-c", "4").code == 0
    spec = sent(controller)[0]
    assert (spec["name"], spec["script"], spec["request"]) == ("train", "#!/bin/sh\necho hi\n", {"cpu": "4"})


def test_a_command_behind_the_dashes_is_passed_untouched(controller: ScriptedServer, hal: Hal) -> None:
    """Options behind `--` are the command's own, further dashes too."""
    assert hal("submit", "-c", "2", "--name", "x", "--", "tool", "-c", "9", "--", "--name").code == 0
    spec = sent(controller)[0]
    assert (spec["command"], spec["name"]) == (["tool", "-c", "9", "--", "--name"], "x")


def test_options_of_a_command(controller: ScriptedServer, hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each arrives as the field it means."""
    monkeypatch.setenv("MINE", "1")
    hal(
        *("submit", "-m", "2GiB", "-g", "1", "-r", "licence=3", "-N", "2", "-t", "1h", "-a", "0-9", "-Q", "long"),
        *("-A", "physics", "-u", "ada", "-p", "5", "-d", "7", "-d", "afterany:8", "-e", "A=b=c", "-e", "MINE"),
        *("--retries", "2", "-l", "k=v", "--constraint", "!spot", "--hold", "--signal", "SIGUSR1@5m", "-C", "/x"),
        *("--comment", "second try, more memory", "--umask", "27", "--", "tool"),
    )
    spec = sent(controller)[0]
    assert spec["request"] == {"gpu": "1", "licence": "3", "memory": "2GiB"}  # and as many cpus as the queue gives
    assert (spec["nodes"], spec["walltime"], spec["array"]) == (2, "1h", {"count": 10})
    assert (spec["queue"], spec["account"], spec["user"], spec["priority"]) == ("long", "physics", "ada", 5)
    assert [d["job"] for d in spec["dependencies"]] == ["7", "8"]
    assert (spec["env"]["A"], spec["env"]["MINE"], spec["workdir"]) == ("b=c", "1", "/x")
    assert (spec["retries"], spec["labels"], spec["hold"]) == ({"max": 2}, {"k": "v"}, True)
    assert spec["constraints"] == [{"label": "spot", "op": "absent"}]
    assert spec["signal"] == {"name": "USR1", "before": "5m"}
    assert (spec["comment"], spec["umask"]) == ("second try, more memory", "0027")


def test_a_name_that_is_a_number_is_noted(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """On a command line and in a script's #HAL lines; not with --quiet."""
    (tmp_path / "ranks.sh").write_text("#!/bin/sh\n#HAL -n 4\ntrue\n")
    for words in (("-n", "4", "--", "true"), (tmp_path / "ranks.sh",)):
        ran = hal("submit", *words)
        assert (ran.out, "the job's name is 4: -n is --name; nodes are -N" in ran.err) == ("1\n", True)
        assert sent(controller)[0]["name"] == "4"
        assert hal("submit", "-q", *words).err == ""
    assert hal("submit", "-n", "fit4", "-q", "--", "true").err == ""


@pytest.mark.parametrize(
    ("text", "nodes", "extensions"), [("2..8", 2, 6), ("2-8", 2, 6), ("3", 3, None), ("1..1", 1, None)]
)
def test_a_range_of_nodes_is_a_base_and_extensions(
    text: str, nodes: int, extensions: int | None, controller: ScriptedServer, hal: Hal
) -> None:
    hal("submit", "--nodes", text, "--", "tool")
    spec = sent(controller)[0]
    assert (spec.get("nodes", 1), spec.get("extensions")) == (nodes, extensions)


def test_an_array_of_workers_with_extensions(controller: ScriptedServer, hal: Hal) -> None:
    hal("submit", "--array", "0-9%2", "--extensions", "8", "--workers", "--", "tool")
    spec = sent(controller)[0]
    assert (spec["array"], spec["extensions"], spec["workers"]) == ({"count": 10, "max_running": 2}, 8, True)


def test_export_all_sends_everything_but_hals_own_variables(
    controller: ScriptedServer, hal: Hal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that submits a job does not pass its own HAL_JOB_ID on."""
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("HAL_JOB_ID", "3")
    hal("submit", "--export-all", "--", "tool")
    assert sent(controller)[0]["env"]["MINE"] == "1"
    assert "HAL_JOB_ID" not in sent(controller)[0]["env"]


def test_dry_run_shows_the_spec_and_says_that_nothing_was_submitted(controller: ScriptedServer, hal: Hal) -> None:
    """The controller checks it without storing it."""
    ran = hal("submit", "--dry-run", "-c", "2", "-a", "10", "--", "/bin/echo", "x")
    assert controller.asked[-1].query == {"dry_run": "1"}
    assert ran == (0, "echo: 10 tasks, cpu 2, walltime unlimited, queue default\n", "nothing was submitted\n")
    assert json.loads(hal("submit", "--dry-run", "--json", "--", "x").out)[0]["command"] == ["x"]


def test_standard_input_is_a_file_too(controller: ScriptedServer, hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins with a brace is JSON, else TOML, unless --format says otherwise."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"command": ["a"]}')))
    assert hal("submit", "-").code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"command: [b]")))
    assert hal("submit", "-", "--format", "yaml").code == 0
    assert sent(controller)[0]["command"] == ["b"]


@pytest.mark.parametrize(
    ("name", "data", "code", "message"),
    [
        ("a.toml", b"command = [", 2, "a.toml: not TOML"),
        ("a.yaml", b"command: [a\n b: c", 2, "a.yaml: not YAML"),
        ("a.json", b'{"command": ["a"],}', 2, "a.json: not JSON"),
        ("a.json", b'{"command": ["a"], "walltme": 3}', 2, "unknown field 'walltme'; did you mean 'walltime'"),
        ("a.json", b'[{"command": ["a"]}, {"command": "b"}]', 2, "job 2 of 2: command: expected a list of words"),
        ("a.json", b'{"command": ["a"], "request": {"cpu": "lots"}}', 2, "request.cpu: 'lots'"),
        ("a.json", b"[]", 2, "no job in it"),
        ("a.toml", b"", 2, "is empty"),
        ("a.toml", b"\x7fELF\xff\xfe\x00", 2, "is not UTF-8 text"),
        ("a.txt", b"command", 2, "the format is not clear from its suffix"),
        ("a.json", b'{"command": ["a"], "inputs": ["x"]}', 2, "inputs: not supported by this version"),
        ("a.json", b'{"command": ["a"], "on_node_lost": "explode"}', 2, "on_node_lost: "),
        ("a.json", b'{"command": ["a"], "workdir": "here"}', 2, "workdir: 'here' is not absolute"),
    ],
)
def test_a_bad_file_is_one_clear_error(
    name: str, data: bytes, code: int, message: str, tmp_path: Path, controller: ScriptedServer, hal: Hal
) -> None:
    """It names the file and the place, and nothing was sent."""
    (tmp_path / name).write_bytes(data)
    ran = hal("submit", tmp_path / name)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert str(tmp_path / name) in ran.err
    assert controller.asked == []


def test_one_bad_file_keeps_all_from_being_submitted(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """No partial state."""
    (tmp_path / "good.json").write_text('{"command": ["a"]}')
    assert hal("submit", tmp_path / "good.json", tmp_path / "none.json").code == 3
    assert controller.asked == []


def test_a_directory_and_an_unreadable_file_say_so(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """Each with the exit code of its kind."""
    ran = hal("submit", tmp_path)
    assert (ran.code, "Is a directory" in ran.err) == (2, True)
    if os.geteuid() != 0:
        (tmp_path / "secret.json").write_text("{}")
        (tmp_path / "secret.json").chmod(0)
        assert hal("submit", tmp_path / "secret.json").code == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "there is nothing to submit; name a file (- is standard input), or write a command after --"),
        (("--",), "there is no command after --"),
        (("a.json", "--", "tool"), "files and a command cannot be submitted together"),
        (("-m", "lots", "--", "tool"), "memory: 'lots' is not a size"),
        (("-r", "licence", "--", "tool"), "--request: 'licence' is not NAME=VALUE"),
        (("-e", "NOT_SET_HERE", "--", "tool"), "--env: variable 'NOT_SET_HERE' is not set"),
        (("--umask", "0o27", "--", "tool"), "umask: '0o27' is not a umask"),
        (("--signal", "USR1", "--", "tool"), "is not NAME@TIME"),
        (("--begin", "soon", "--", "tool"), "begin: 'soon' is not an instant"),
        (("-N", "0", "--", "tool"), "'0' is neither a number from 1 on nor a range like 2..8"),
        (("-N", "8..2", "--", "tool"), "'8..2' is neither a number from 1 on nor a range like 2..8"),
        (("-a", "9-1", "--", "tool"), "array: '9-1' has no task"),
    ],
)
def test_bad_options_are_usage_errors(args: tuple[str, ...], message: str, hal: Hal) -> None:
    """Exit code 2, before any controller is asked."""
    ran = hal("submit", *args)
    assert ran.code == 2
    assert message in ran.err


def test_options_that_a_job_file_would_ignore_are_refused(tmp_path: Path, controller: ScriptedServer, hal: Hal) -> None:
    """They would silently be lost."""
    (tmp_path / "a.json").write_text('{"command": ["a"]}')
    ran = hal("submit", tmp_path / "a.json", "--cpus", "4")
    assert (ran.code, "--cpus does not apply to job files; use --set" in ran.err) == (2, True)
