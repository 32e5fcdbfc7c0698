"""What holds for every command: version, help, errors, exit codes, JSON, colour, and what it costs to start."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from hal.cli.main import COMMANDS, root
from hal.client.addresses.address import Address
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json, problem

Hal = Callable[..., Ran]
HEAVY = ("numba", "numpy", "rich", "sqlalchemy", "httpx", "msgspec", "yaml", "http", "asyncio", "litestar", "structlog")


def commands() -> list[str]:
    """`jobs`, `node fence`, …: all that can be typed."""
    context = click.Context(root)
    names = []
    for name in COMMANDS:
        found = root.get_command(context, name)
        names += [f"{name} {inner}" for inner in found.commands] if isinstance(found, click.Group) else [name]
    return names


def test_version_is_that_of_the_package(hal: Hal) -> None:
    """pyproject.toml and `hal --version` say the same."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert hal("--version") == (0, f"hal {project['version']}\n", "")


def test_version_imports_little() -> None:
    """`hal --version` is to cost under 120 ms of CPU: these modules would break that."""
    code = (
        "import sys; before = set(sys.modules)\nfrom hal.cli.main import main\nmain(['--version'])\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = ran.stdout.splitlines()[-1].split()
    heavy = [name for name in loaded if name.partition(".")[0] in HEAVY]
    assert not heavy, f"imported: {heavy}"
    own = [name for name in loaded if name.startswith("hal.")]
    assert len(own) <= 8, f"modules of HAL: {own}"
    assert len(loaded) <= 120, f"{len(loaded)} modules: {loaded}"


@pytest.mark.parametrize(
    ("words", "never", "most"),
    [
        (("exec", "1", "--", "true"), {*HEAVY, "ssl", "email", "decimal", "shutil", "zoneinfo"}, 46),
        (("jobs",), {*HEAVY, "ssl", "email", "shutil", "zoneinfo"} - {"msgspec"}, 72),
    ],
)
def test_a_command_that_is_typed_often_imports_little(
    words: tuple[str, ...], never: set[str], most: int, serve: Serve, hal_home: Path
) -> None:
    """Each of these modules is milliseconds before the first byte; the specs of jobs are for those who submit."""
    code = (
        "import sys; before = set(sys.modules)\nfrom hal.cli.main import main\n"
        f"main({list(words)!r})\nprint(*sorted(set(sys.modules) - before))"
    )
    job = {"id": "1", "state": "running", "request": {"cpu": 1000}, "walltime": 60.0}
    serve(lambda asked: problem(404, "not-found", "no") if asked.method == "POST" else as_json({"jobs": [job]}))
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, stdin=subprocess.DEVNULL
    )
    loaded = ran.stdout.splitlines()[-1].split()
    assert not [name for name in loaded if name.partition(".")[0] in never]
    own = {name for name in loaded if name.startswith("hal.")}
    assert not own & {"hal.core.model.job", "hal.core.model.codec", "hal.client.specs", "hal.client.submission"}
    assert len(own) <= most, f"{len(own)} modules of HAL: {sorted(own)}"


def test_help_imports_no_command(hal: Hal) -> None:
    """The list of commands is known without them."""
    code = (
        "import sys\nfrom hal.cli.main import main\nmain(['--help'])\nassert 'hal.cli.jobs.job_list' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_examples_on_h(name: str, hal: Hal) -> None:
    """`-h` and `--help` are the same, and show how the command is used."""
    short, long = hal(*name.split(), "-h"), hal(*name.split(), "--help")
    assert short == long
    assert (short.code, short.err) == (0, "")
    assert f"hal {name}" in short.out.partition("Usage:")[2]
    examples = [line for line in short.out.partition("Examples:")[2].splitlines() if f"hal {name}" in line]
    assert examples, "no line to type"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says_of_it(name: str, hal: Hal) -> None:
    """The sentence stands once, in the table of commands; it is short enough for the list and ends like a sentence."""
    summary = COMMANDS[name].summary
    assert hal(name, "-h").out.partition("\n\n")[2].strip().startswith(summary)
    assert summary.endswith(".")
    assert len(summary) <= 60


@pytest.mark.parametrize("name", [name for name in commands() if " " in name])
def test_a_command_of_a_group_is_listed_with_a_whole_sentence(name: str, hal: Hal) -> None:
    """None is cut at the edge of a terminal of 80 columns."""
    group, _, verb = name.partition(" ")
    lines = [line.split(maxsplit=1) for line in hal(group, "-h").out.splitlines() if line.startswith(f"  {verb} ")]
    assert len(lines) == 1
    assert lines[0][1].endswith("."), lines[0][1]


OLD = {
    "node uncordon": "node resume",
    "node rm": "node remove",
    "reader rm": "reader remove",
    **{f"{noun} rm": f"{noun} remove" for noun in ("queue", "account", "qos", "limit", "booking")},
}


@pytest.mark.parametrize("old", OLD)
def test_old_spellings_work_and_are_not_listed(old: str, hal: Hal) -> None:
    """docs/cli.md has the list of them."""
    group, _, verb = old.partition(" ")
    assert hal(group, verb, "-h").out.partition("\n\n")[2] == hal(*OLD[old].split(), "-h").out.partition("\n\n")[2]
    assert f"  {verb} " not in hal(group, "-h").out
    assert f"hal {old}`" in (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_a_mistyped_command_of_a_group_names_the_nearest(hal: Hal) -> None:
    """As at the top."""
    assert hal("node", "resme") == (
        2,
        "",
        "error: there is no command 'hal node resme'\nhint: did you mean 'hal node resume'?\n",
    )
    assert "see hal node --help" in hal("node", "xyzzy").err


def test_a_mistyped_command_names_the_nearest(hal: Hal) -> None:
    """One line says what is wrong, the next what to do."""
    assert hal("sbmit") == (2, "", "error: there is no command 'hal sbmit'\nhint: did you mean 'hal submit'?\n")


def test_a_mistyped_option_names_the_nearest(hal: Hal) -> None:
    """As click knows it."""
    ran = hal("jobs", "--usr", "x")
    assert ran.code == 2
    assert "no such option '--usr'" in ran.err
    assert "--user" in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--failed",), "for all jobs that failed: hal rm --state failed"),
        (("42", "--failed", "--state", "cancelled"), "--state and --failed cannot be combined"),
        (("42.7-",), "is not a range"),
        (("42", "--user", "x"), "ids and filters cannot be combined"),
        ((), "no job is named"),
        (("--all",), "for all ended jobs: hal rm --ended-before now"),
        (("--ended-before", "the day before", "-y"), "is not an instant"),
    ],
)
def test_a_removal_that_makes_no_sense_is_refused_before_anybody_is_asked(
    words: tuple[str, ...], says: str, hal: Hal
) -> None:
    """No HAL runs here."""
    ran = hal("rm", *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("gantt", "-o", "day.svg"), "a file is named with --file"),
        (("submit", "-o", "out.txt", "--", "true"), "the output of a job goes to --stdout FILE"),
        (("simulate", "day.swf", "-o", "waits.svg"), "--config or --plot or --out-jobs"),
    ],
)
def test_a_file_where_a_format_belongs_has_its_option_beside_it(words: tuple[str, ...], hint: str, hal: Hal) -> None:
    ran = hal(*words)
    assert (ran.code, hint in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_who_wants_all_jobs_is_told_how_to_name_them(verb: str, hal: Hal) -> None:
    """`--all` is no option of what acts on jobs: the hint is a line to type, and no option of another meaning."""
    ran = hal(verb, "--all")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: no such option '--all'")
    assert f"hal {verb} --user NAME; for everybody's: hal {verb} --state " in ran.err
    assert "--label" not in ran.err


def test_all_tasks_run_again_only_of_jobs_that_are_named(hal: Hal) -> None:
    """`hal requeue --all` is about tasks, not about jobs, and says how jobs are named."""
    ran = hal("requeue", "--all")
    assert ran.code == 2
    assert (
        "--all means all tasks of the jobs that are named; for all jobs of a user: hal requeue --user NAME" in ran.err
    )


@pytest.mark.parametrize(
    ("words", "line"), [((), "  up        Start HAL on this machine."), (("reader",), "Commands:")]
)
def test_a_group_alone_shows_its_help(words: tuple[str, ...], line: str, hal: Hal) -> None:
    """A newcomer who types `hal` sees what there is, line by line, and no error."""
    ran = hal(*words)
    assert (ran.code, line in ran.err.splitlines(), "error" in ran.err) == (2, True, False)


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("invalid-spec", 400, 2),
        ("not-found", 404, 3),
        ("denied", 403, 4),
        ("conflict", 409, 6),
        ("overloaded", 429, 7),
        ("timed-out", 504, 124),
        ("internal", 500, 1),
    ],
)
def test_errors_have_the_documented_exit_codes(code: str, status: int, exit_code: int, serve: Serve, hal: Hal) -> None:
    """One line and a hint on stderr, nothing on stdout."""
    serve(lambda asked: problem(status, code, "it is so", "do that"))
    assert hal("queues") == (exit_code, "", "error: it is so\nhint: do that\n")


def test_a_command_leaves_no_connection_open(serve: Serve, hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls `main` as a function, as tests do hundreds of times, has no connection more afterwards."""
    connected: list[socket.socket] = []
    connect = Address.connect

    def watched(self: Address, *args: Any) -> socket.socket:
        connected.append(connect(self, *args))
        return connected[-1]

    monkeypatch.setattr(Address, "connect", watched)
    serve(lambda asked: problem(404, "not-found", "it is so", "do that"))
    assert hal("queues").code == 3
    assert [one.fileno() for one in connected] == [-1]


def test_unreachable_is_5_and_says_how_to_start(hal: Hal, hal_home: Path) -> None:
    """HAL was never up in this home."""
    ran = hal("jobs")
    assert ran.code == 5
    assert ran.err == f"error: HAL at {hal_home} is not running\nhint: start it with: hal up\n"


@pytest.mark.parametrize("form", [("--json",), ("-o", "json"), ("--output=json",)])
def test_errors_are_json_where_json_was_asked_for(form: tuple[str, ...], hal: Hal) -> None:
    """Code, message, hint and exit code, on stderr."""
    ran = hal("jobs", *form)
    error = json.loads(ran.err)["error"]
    assert (error["code"], error["exit_code"], ran.code, ran.out) == ("unreachable", 5, 5, "")


def test_usage_errors_are_json_too(hal: Hal) -> None:
    """Also before any command has run."""
    assert json.loads(hal("jobs", "--json", "--limit", "many").err)["error"]["code"] == "invalid-usage"


def test_json_behind_the_dashes_belongs_to_the_command(hal: Hal) -> None:
    """`hal run -- tool --json` does not change how hal speaks."""
    assert hal("run", "--", "tool", "--json").err.startswith("error: ")


def test_home_works_before_and_behind_the_command(hal: Hal, tmp_path: Path) -> None:
    """Both name the same HAL."""
    before, behind = hal("--home", tmp_path, "jobs"), hal("jobs", "--home", tmp_path)
    assert before == behind
    assert f"hal up --home {tmp_path}" in before.err


def test_a_reader_that_goes_away_is_no_error(serve: Serve, hal_home: Path) -> None:
    """`hal jobs | head -1` says nothing on stderr; what is written is more than a pipe holds."""
    many = [{"id": str(n), "state": "running", "name": "x" * 100} for n in range(2_000)]
    serve(lambda asked: as_json({"jobs": many}))
    hal = [sys.executable, "-m", "hal.cli.main", "jobs", "--limit", "0"]
    with subprocess.Popen(hal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def on_a_terminal(*args: str, **env: str) -> str:
    """Everything that a command writes to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(env)
        os.execv(sys.executable, [sys.executable, "-m", "hal.cli.main", *args])
    found = b""
    try:
        while chunk := os.read(fd, 65_536):
            found += chunk
    except OSError:  # the terminal is gone with its last process
        pass
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    return found.decode()


def test_colour_on_a_terminal_unless_no_color(serve: Serve, hal_home: Path) -> None:
    """States are coloured; NO_COLOR and pipes get plain text."""
    serve(lambda asked: as_json({"jobs": [{"id": "1", "state": "running", "name": "fit"}]}))
    assert "\x1b[32mrunning" in on_a_terminal("jobs", TERM="xterm", NO_COLOR="")
    plain = on_a_terminal("jobs", TERM="xterm", NO_COLOR="1")
    assert "running" in plain
    assert "\x1b" not in plain
    assert "\x1b[1;31merror:" in on_a_terminal("jbs", TERM="xterm", NO_COLOR="")
    assert "\x1b" not in on_a_terminal("jbs", TERM="xterm", NO_COLOR="1")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str, hal: Hal) -> None:
    """It asks hal itself, by the variable _HAL_COMPLETE."""
    ran = hal("completion", shell)
    assert ran.code == 0
    assert f"_HAL_COMPLETE={shell}_complete" in ran.out


def test_completion_knows_commands_and_options() -> None:
    """What bash asks when TAB is pressed."""

    def complete(words: str, position: int) -> str:
        env = {**os.environ, "_HAL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        hal = [sys.executable, "-c", "import sys; sys.argv = ['hal']; from hal.cli.main import main; sys.exit(main())"]
        return subprocess.run(hal, env=env, capture_output=True, text=True, timeout=60).stdout

    assert complete("hal re", 1).split() == [
        "plain,replace",
        "plain,release",
        "plain,requeue",
        "plain,report",
        "plain,reader",
        "plain,restore",
    ]
    assert "plain,--walltime" in complete("hal submit --wall", 2)
