"""What a shell completes as values: in a real bash against a scripted controller, and nothing where none answers."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from hal.cli.kit.completion import VARIABLE
from hal.cli.kit.screen import Screen
from hal.cli.main import root
from tests.cli.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem

POLICY = {"version": 1, "at_ms": 0, "user": "", "note": "", "policy": {"queues": {"short": {}, "default": {}}}}
BASH = """
source <(hal completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_hal_completion hal "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
hal completion fish | source
complete --do-complete "$argv" | string split -f1 \\t
"""


def answer(asked: Asked) -> Reply:
    """Two jobs, two nodes and two queues."""
    if asked.path == "/v1/jobs":
        jobs = [{"id": "42", "name": "fit", "user": "ada", "state": "running"},
                {"id": "7", "name": "prep", "user": "bob", "state": "pending"}]  # fmt: skip
        return as_json({"jobs": [job for job in jobs if asked.query.get("state") != "ended"]})
    if asked.path == "/v1/nodes":
        return as_json({"nodes": [{"name": "gpu1", "state": "up"}, {"name": "big", "state": "up"}]})
    if asked.path == "/v1/cron":
        crons = [{"name": "nightly", "user": "ada", "schedule": "0 2 * * *"},
                 {"name": "sync", "user": "bob", "schedule": "@hourly"}]  # fmt: skip
        return as_json({"periodic": [one for one in crons if asked.query.get("user") in (None, one["user"])]})
    if asked.path == "/v1/secrets":
        return as_json({"secrets": [{"name": "db"}]})
    if asked.path == "/v1/policy":
        return as_json(POLICY)
    if asked.path == "/v1/topology":
        return as_json({"levels": ["zone", "rack"], "domains": []})
    return problem(404, "not-found", "nothing there")


def _with_hal() -> dict[str, str]:
    """An environment in which `hal` is the one of this interpreter."""
    return dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def completed(*words: str) -> list[str]:
    """What bash offers for the last word of a line; nothing may be printed beside it."""
    ran = subprocess.run(["bash", "-c", BASH, "bash", *words], capture_output=True, text=True, env=_with_hal())
    assert ran.stderr == ""
    return sorted(ran.stdout.split())


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("show", ""), ["42", "7"]),
        (("submit", "--queue", "s"), ["short"]),
        (("jobs", "--user", ""), ["ada", "bob"]),
        (("jobs", "--columns", "id,wai"), ["id,waited"]),
        (("jobs", "--state", "pend"), ["pending"]),
        (("node", "drain", "g"), ["gpu1"]),
        (("queue", "set", ""), ["default", "short"]),
        (("queue", "add", ""), []),
        (("rm", ""), []),
        (("cron", "hold", ""), ["nightly", "sync"]),
        (("cron", "show", "-u", "ada", ""), ["nightly"]),
        (("cron", "add", ""), []),
        (("secret", "remove", ""), ["db"]),
        (("cancel", "--name", "f"), ["fit"]),
        (("submit", "--within", ""), ["rack", "zone"]),
        (("evict", "--within", ""), []),
    ],
)
def test_names_that_hal_knows_are_completed(
    words: tuple[str, ...], values: list[str], serve: Serve, hal_home: Path
) -> None:
    """Jobs, queues, users, columns, states, nodes; `hal rm` only jobs that have ended; a new name is nobody's yet.
    Levels of the topology; elsewhere --within is a time."""
    serve(answer)
    found = BashComplete(root, {"obj": Screen()}, "hal", VARIABLE).get_completions(list(words[:-1]), words[-1])
    assert sorted(item.value for item in found) == values


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("submit", "job"), "file"),
        (("submit", "job.sh", "./da"), "file"),
        (("run", "--", "./pro"), "file"),
        (("exec", "42", "--", "./pro"), "file"),
        (("submit", "--stdout", "o"), "file"),
        (("submit", "--workdir", "/t"), "dir"),
        (("cron", "add", "nightly", "@daily", "job"), "file"),
        (("policy", "diff", "ha"), "file"),
        (("show", "4"), "plain"),
    ],
)
def test_files_are_completed_by_the_shell(words: tuple[str, ...], kind: str, serve: Serve, hal_home: Path) -> None:
    """Scripts, job files, their arguments, and the words of a command behind `--`."""
    serve(answer)
    found = BashComplete(root, {"obj": Screen()}, "hal", VARIABLE).get_completions(list(words[:-1]), words[-1])
    assert [item.type for item in found] == [kind]


def test_bash_completes_them(serve: Serve, hal_home: Path) -> None:
    """With the script that `hal completion bash` prints."""
    serve(answer)
    assert completed("hal", "show", "") == ["42", "7"]


def test_without_a_controller_nothing_is_completed_and_nothing_said(hal_home: Path) -> None:
    """There is no HAL in this home."""
    assert completed("hal", "show", "") == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_names_that_hal_knows(serve: Serve, hal_home: Path) -> None:
    """As bash does."""
    serve(answer)
    ran = subprocess.run(["fish", "-c", FISH, "hal show "], capture_output=True, text=True, env=_with_hal())
    assert {"42", "7"} <= set(ran.stdout.split())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_names_that_hal_knows(serve: Serve, hal_home: Path, tmp_path: Path) -> None:
    """In an interactive zsh on a terminal, as ~/.zshrc of docs/cli.md sets it up: a list where there are several, the
    word itself where there is one."""
    serve(answer)
    setup = 'autoload -Uz compinit && compinit -D -u; eval "$(hal completion zsh)"; PROMPT="ready> "\n'
    (tmp_path / ".zshrc").write_text(setup)
    ours, theirs = pty.openpty()
    environment = _with_hal() | {"ZDOTDIR": str(tmp_path), "TERM": "dumb", "HOME": str(tmp_path)}
    process = subprocess.Popen(["zsh", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        _until(ours, b"ready> ")
        os.write(ours, b"hal show \t\t")
        shown = _until(ours, b"fit", b"prep")
        assert b"42" in shown
        assert b"7" in shown
        os.write(ours, b"\x15hal node drain g\t")
        _until(ours, b"drain gpu1")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _until(terminal: int, *wanted: bytes) -> bytes:
    """What a terminal shows, once all of these are in it."""
    shown = b""
    while not all(word in shown for word in wanted):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, shown
        shown += os.read(terminal, 1 << 12)
    return shown
