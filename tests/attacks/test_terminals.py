"""Text of strangers, users, nodes and servers reaches a terminal, where it must not act (M1, attempts 65 to 69).

Every command of `hal` runs on a pseudo-terminal against a server that puts escape sequences into each text that the
REST interface has. The list of commands is that of the command line: a new one fails here until it is tried.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import pty
import re
import signal
import socket
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
import pytest

from hal.cli.main import main, root
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json, problem
from tests.e2e.conftest import LiveHal, readable

DEADLINE_S: Final = 30.0
EVIL: Final = (
    "\x1b]0;PWNED\x07\x1b[8m\x9b2J\x90q\x9c\x7f\x08"
    "\u202etxt.exe\u2066\u200b\u2028\ufeff\U000e0041\r\nforged line\n\x1bc"
)
MARK: Final = "]0;PWNED"
"""Of the text above, once it is written in escapes."""
OURS: Final = re.compile(r"\x1b\[(?!8m)[0-9;]*m|\r(?:\x1b\[1A)?\x1b\[2?K|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]")
"""What commands themselves send to a terminal: colours, a line taken away, the cursor hidden and shown, one line up."""
ACTS: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0041]"
)
SPECS: Final = [
    json.loads((Path(__file__).parents[2] / "spec/openapi" / name).read_text())
    for name in ("observability-v1.json", "hal-v1.json")
]
SPEC: Final[dict[str, Any]] = {
    "paths": {**SPECS[0]["paths"], **SPECS[1]["paths"]},
    "components": {"schemas": {**SPECS[0]["components"]["schemas"], **SPECS[1]["components"]["schemas"]}},
}
"""What controller and collector answer: the attacker is both."""
JOB: Final = {"command": ["sh", "-c", EVIL], "workdir": EVIL, "env": {EVIL: EVIL}, "dependencies": []}
WHERE_STATES: Final = ("succeeded", "up", "failed")

NOUNS: Final = ("queue", "account", "qos", "limit", "booking", "gate")
COMMANDS: Final[dict[str, tuple[list[str], ...]]] = {
    "up": (["--home", f"/proc/{EVIL}"], ["--nodes", "1", "--name", EVIL]),
    "agent": (["--controller", EVIL], ["--home", f"/proc/{EVIL}", "--join", EVIL, "--controller", "127.0.0.1:1"]),
    "topology": ([], ["--level", EVIL]),
    "topology check": ([f"/proc/{EVIL}"],),
    "sessions": ([],),
    "session show": (["x"], [EVIL], ["x", "--watch"]),
    "session failures": (["x"], [EVIL, "--tag", EVIL, "--function", EVIL]),
    "session metrics": ([], [EVIL]),
    "session end": (["x"], [EVIL]),
    "replace": (["1", "--", "x"], ["1", "--name", EVIL, "--wait"], [EVIL, "--", EVIL]),
    "endpoint": (["x"], ["x", "--port", EVIL], [EVIL, "--user", EVIL]),
    "offer put": (["x", "--resources", "cpu=1"], [EVIL, "--resources", EVIL]),
    "offer list": ([],),
    "offer withdraw": (["x"], [EVIL]),
    "token create": ([], ["--node", EVIL]),
    "token list": ([],),
    "token revoke": (["x"], [EVIL]),
    "certificate list": ([], ["--name", EVIL]),
    "certificate revoke": (["service", "x"], ["service", EVIL]),
    "certificate request": (
        ["/nowhere", "--role", "service", "--name", EVIL, "--join", EVIL, "--controller", "h"],
        ["/nowhere", "--role", "service", "--name", "x", "--join", "x", "--controller", EVIL],
    ),
    "certificate renew": (["/nowhere", "--controller", "h"], [f"/{EVIL}", "--controller", "h"]),
    "down": (["--home", f"/proc/{EVIL}"], ["--home", f"/dev/null/{EVIL}"]),
    "status": ([], ["--home", f"/proc/{EVIL}"]),
    "config check": ([f"/proc/{EVIL}"], []),
    "config show": ([f"/proc/{EVIL}"], ["--changed"]),
    "backup": ([f"/proc/{EVIL}"],),
    "restore": ([f"/proc/{EVIL}"], ["/etc/hostname", "--home", f"/proc/{EVIL}"]),
    "run": (["--", "true"], ["--detach", "--", "true"], ["--name", EVIL, "--", "true"]),
    "submit": (["--", "true"], [f"/proc/{EVIL}"], ["--set", EVIL, "--", "true"]),
    "cron add": (["x", "@daily", "--", "true"], [EVIL, EVIL, "--", "true"]),
    "cron list": ([], ["--user", EVIL]),
    "cron show": (["x"], [EVIL]),
    "cron hold": (["x"], [EVIL]),
    "cron resume": (["x"], [EVIL]),
    "cron run": (["x"], [EVIL]),
    "cron history": (["x"], [EVIL]),
    "cron remove": (["x"], [EVIL]),
    "wait": (["1"], ["1", "2"], ["1.0-1"]),
    "cancel": (["1"], ["--name", "x"]),
    "requeue": (["1"], ["--name", "x"]),
    "evict": (["1"], ["--node", "n1"], ["1", "--reason", EVIL]),
    "hold": (["1"], ["--name", "x"]),
    "release": (["1"], ["--name", "x"]),
    "update": (["1", "--priority", "-1"],),
    "jobs": ([], ["1"], ["--state", EVIL], ["-w"]),
    "show": (["1"], ["1.0"], ["1.0-1"], ["1", "--failed"], ["1", "--priority"], ["1", "--graph"], [EVIL]),
    "history": ([], ["--by", "user"], ["--user", EVIL]),
    "efficiency": (["1"], [EVIL]),
    "gantt": ([], ["--node", EVIL]),
    "fetch": (["1", "--list"], ["1", "--to", f"/proc/{EVIL}"], [EVIL]),
    "exec": (["1", "--", "true"], [EVIL, "--", "true"]),
    "alloc": (["--", "true"], ["--here", "--", "true"], ["--name", EVIL, "--", "true"]),
    "hostfile": ([],),
    "launch": (["--job", "1", "true"], ["--job", EVIL, "true"], ["--job", "1", "--node", EVIL, "true"]),
    "forward": (["1", "8888"], [EVIL, "8888"]),
    "attach": (["1"], [EVIL]),
    "graph": (["1"], ["1", "--dot"], ["1", "--mermaid"], [EVIL]),
    "why": (["1"], ["1.0"], [EVIL]),
    "logs": (["1"], ["--search", "x"], ["--search", EVIL], ["1", "-f"],
             ["1", "--tail", "1"], ["1", "--raw"], ["1.0-1"], ["1.0-1", "-f"], ["1", "--failed"]),
    "nodes": ([], ["n1"]),
    "node cordon": (["n1"],),
    "node drain": (["n1"],),
    "node fence": (["n1"],),
    "node revoke": (["n1"],),
    "node list": ([],),
    "node remove": (["n1"],),
    "node resume": (["n1"],),
    "node taint": (["n1", "a=b"], [EVIL, "a"], ["n1", EVIL]),
    "node untaint": (["n1", "a"], ["n1", EVIL]),
    "node show": (["n1"], [EVIL], ["n1", "--devices"]),
    "queues": ([],),
    "shares": ([],),
    "events": ([], ["-f"], ["--job", "1"]),
    "attempts": ([], ["-f"], ["--state", EVIL], ["--after", "1"]),
    "reader list": ([],),
    "wants": ([],),
    "plan": ([],),
    "reader add": (["x"], [EVIL]),
    "reader remove": (["x"], [EVIL]),
    **{f"{noun} list": ([],) for noun in NOUNS},
    **{f"{noun} {verb}": (["x"], [EVIL]) for noun in NOUNS for verb in
       ("remove", "show")},
    **{f"{noun} set": (["x", "--note", "y"], [EVIL]) for noun in NOUNS},
    **{f"{noun} add": (["x"], [EVIL]) for noun in NOUNS},
    "advice list": ([],),
    "advice show": (["x"], [EVIL]),
    "advice put": (["x", f"/proc/{EVIL}"], [EVIL, "/dev/null"]),
    "advice remove": (["x"], [EVIL]),
    "rm": (["1", "--yes"], ["--name", EVIL, "--yes"], [EVIL]),
    "service install": (["--print", "--home", f"/proc/{EVIL}"], ["--name", EVIL, "--print"], ["--print", "--", EVIL]),
    "service remove": (["--name", EVIL],),
    "licences": ([],),
    "policy apply": ([f"/proc/{EVIL}"], ["/dev/null"]),
    "policy diff": (["1"], ["1", "2"], [EVIL]),
    "policy history": ([],),
    "policy rollback": (["1"], ["1", "--dry-run"]),
    "policy set": (["weights.age=1"], [EVIL]),
    "policy show": ([], ["1"]),
    "login": (["http://127.0.0.1:1"], [EVIL]),
    "logout": ([],),
    "whoami": ([], ["--rights"]),
    "audit": ([], ["-f"], ["--user", EVIL]),
    "audit head": ([],),
    "audit verify": ([], [f"/proc/{EVIL}"], ["--head", EVIL]),
    "access show": ([], ["--user", EVIL]),
    "account limit": (["x", "y", "--running", "1"], [EVIL, EVIL, "--running", "1"]),
    "queue close": (["x"], [EVIL]),
    "queue drain": (["x"], [EVIL]),
    "queue open": (["x"], [EVIL]),
    "security check": ([], ["--home", f"/proc/{EVIL}"]),
    "secret list": ([],),
    "secret remove": (["x"], [EVIL]),
    "secret rotate-key": ([],),
    "secret set": (["x", "--from-file", "/etc/hostname"], [EVIL, "--from-file", f"/proc/{EVIL}"]),
    "api-token create": (["x"], [EVIL]),
    "api-token list": ([],),
    "api-token revoke": (["x"], [EVIL]),
    "simulate": ([f"/proc/{EVIL}.swf"], ["/dev/null", "--policy", EVIL]),
    "workload generate": (["--jobs", "1", "--output", f"/proc/{EVIL}"],),
    "completion": (["bash"], [EVIL]),
    "alerts": ([], ["--all"], ["-w"]),
    "alert silence": (["alert=x", "--for", "1h"], [EVIL, "--for", "1h"], ["alert=x", "--for", EVIL]),
    "alert unsilence": (["1"], [EVIL]),
    "alert silences": ([],),
    "alert test": ([], [EVIL]),
    "alert rules": ([],),
    "usage": ([], ["--csv"], ["--by", "node", "--user", EVIL], ["--zone", EVIL]),
    "report": (["--file", "/dev/null"], ["--file", f"/proc/{EVIL}"], ["--week", EVIL]),
    "trace": (["1"], [EVIL]),
    "metrics": ([],),
    "top": (["--once"], ["--once", "--view", "nodes"], ["--once", "--view", "queues"], ["--once", EVIL]),
    "web": (["--listen", EVIL], ["--link"]),
}  # fmt: skip
"""What follows each command, in several ways."""
RAW: Final = (["run", "--", "true"], ["logs", "1", "--raw"])
"""What passes on the output of a job byte for byte, as it is meant to."""
FORMS: Final = ([], ["-o", "json"], ["-o", "yaml"])


def every_command() -> list[str]:
    """All that can be typed, as the command line itself lists it."""

    def below(found: click.Command, name: tuple[str, ...], context: click.Context) -> Iterator[str]:
        if not isinstance(found, click.Group):
            yield " ".join(name)
            return
        if found.invoke_without_command and name:
            yield " ".join(name)
        for one in found.list_commands(context):
            inner = found.get_command(context, one)
            assert inner is not None
            yield from below(inner, (*name, one), context)

    return list(below(root, (), click.Context(root)))


def evil_value(schema: Mapping[str, Any] | bool, name: str = "", depth: int = 0) -> Any:
    """A value of that schema with an escape sequence wherever it allows a text."""
    if isinstance(schema, bool):
        return EVIL
    if "$ref" in schema:
        return evil_value(SPEC["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name, depth)
    if name == "spec":
        return JOB
    if name in ("request", "capacity", "free", "resources") and schema.get("type") == "object":
        return {"cpu": 1_000}
    if name.endswith("walltime"):
        return "1m"
    if name == "cursor":
        return None if "anyOf" in schema else ""
    if "enum" in schema:
        return next((state for state in WHERE_STATES if state in schema["enum"]), schema["enum"][0])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return evil_value(next(one for one in schema[several] if one.get("type") != "null"), name, depth)
    kind = schema.get("type")
    if kind == "string":
        return "1" if schema.get("pattern") else EVIL
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return False
    if kind == "array":
        return [evil_value(schema.get("items", {}), name, depth + 1)] if depth < 8 else []
    if kind == "object":
        value = {key: evil_value(one, key, depth + 1) for key, one in schema.get("properties", {}).items()}
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            value[EVIL] = evil_value(extra, "", depth + 1)
        return value
    return EVIL


def evil_answer(asked: Asked) -> Reply:
    """What the interface says that is answered there, with escape sequences in it."""
    if asked.path.endswith("/logs"):
        offset, data = int(asked.query.get("offset", 0)), EVIL.replace("\r\nforged line\n", "").encode()
        about = {"HAL-Log-Offset": str(offset), "HAL-Log-Size": str(len(data)), "HAL-Log-Ended": "true"}
        return Reply(data[offset:], 200, {"Content-Type": "application/octet-stream", **about})
    if asked.path.endswith("/outputs") and asked.method == "GET":
        data = EVIL.replace("\r\nforged line\n", "").encode()
        heads: list[dict[str, Any]] = [
            {"task": 0, "attempt": 1, "node": EVIL, "size": len(data), "bytes": len(data), "path": EVIL},
            {"task": 1, "attempt": 1, "node": EVIL, "error": EVIL},
        ]
        pieces = [json.dumps(head).encode() + b"\n" for head in heads]
        return Reply(pieces[0] + data + pieces[1], 200, {"Content-Type": "application/vnd.hal.outputs"})
    if asked.path == "/v1/whoami":
        return as_json({"user": "me", "role": "admin", "peer": EVIL, "token": EVIL})
    for path, operations in SPEC["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", path), asked.path) and asked.method.lower() in operations:
            responses = operations[asked.method.lower()]["responses"]
            status = min(code for code in responses if code.startswith("2"))
            kinds = responses[status]["content"]
            if "application/x-tar" in kinds:
                return Reply(evil_archive(), 200, {"Content-Type": "application/x-tar"})
            if "application/json" not in kinds:
                lines = EVIL.replace("\r\nforged line\n", "").encode()
                return Reply(lines, int(status), {"Content-Type": next(iter(kinds))})
            if "text/event-stream" in asked.headers.get("accept", ""):
                event = json.dumps(evil_value(kinds["application/json"]["schema"])["events"][0])
                return Reply(f"id: 1\ndata: {event}\n\n".encode(), 200, {"Content-Type": "text/event-stream"})
            return as_json(evil_value(kinds["application/json"]["schema"]), int(status))
    return problem(404, EVIL, EVIL, EVIL)


def evil_archive() -> bytes:
    """Of what was collected of a job that has named a file like that."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(EVIL))
    return data.getvalue()


def free_port() -> int:
    """One on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def evil_problem(asked: Asked) -> Reply:
    """Refused, in words of an attacker."""
    return problem(409, EVIL, f"no: {EVIL}", EVIL)


def no_answer(asked: Asked) -> Reply:
    """Neither JSON nor text."""
    return Reply(f"{EVIL} \udc9b".encode(errors="surrogateescape"), 500, {"Content-Type": "text/html", "X-A": "\x9b2J"})


def wrong_types(asked: Asked) -> Reply:
    """JSON of no shape that anybody expects; the error that follows quotes it."""
    return as_json({EVIL: [EVIL], "jobs": EVIL, "state": EVIL, "id": {EVIL: EVIL}}, 200)


class Shown:
    """A command as it runs on a terminal: all that it wrote."""

    def __init__(self, args: list[str], home: Path, raw: bool = False) -> None:
        self.text = ""
        self.args = args
        pid, terminal = pty.fork()
        if pid == 0:
            self._command(args, home)
        deadline_s = time.monotonic() + DEADLINE_S
        try:
            os.write(terminal, b"y\n\nl\ny\n")
            follows = bool({"-f", "-w"} & set(args))
            while True:
                assert time.monotonic() < deadline_s, f"hal {args} did not end: {self.text[-2_000:]!r}"
                if not readable(terminal, 0.4 if follows else DEADLINE_S):
                    os.kill(pid, signal.SIGINT)
                    continue
                try:
                    data = os.read(terminal, 65_536)
                except OSError:
                    break
                if not data:
                    break
                self.text += data.decode(errors="surrogateescape")
                if self.text.endswith("token: "):
                    os.write(terminal, b"x\n")
        finally:
            os.close(terminal)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @staticmethod
    def _command(args: list[str], home: Path) -> None:
        try:
            os.environ |= {"HAL_HOME": str(home), "TERM": "xterm-256color", "XDG_CONFIG_HOME": str(home / "config")}
            os.environ |= {"COLUMNS": "4000"}
            if "--url" in args:
                os.environ["HAL_COLLECTOR"] = args[args.index("--url") + 1]
            os.chdir("/")
            sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
            sys.stdout, sys.stderr = (
                io.TextIOWrapper(os.fdopen(number, "wb", 0, closefd=False), "utf-8", write_through=True)
                for number in (1, 2)
            )
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = main(args)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 99
        os._exit(code)

    @property
    def fault(self) -> str:
        """What acted, or the traceback, with what stands around it; '' if all is well."""
        left = OURS.sub("", self.text).replace("\r\n", "\n")
        found = ACTS.search(left)
        if found is None and "\nforged line" not in left and "Traceback (most" not in left:
            return ""
        return f"hal {self.args}: {left[max(0, found.start() - 200) : found.end() + 100] if found else left[-3_000:]!r}"


@contextlib.contextmanager
def attacker(script: Callable[[Asked], Reply], directory: Path) -> Iterator[str]:
    """A server that answers so; its URL."""
    server = ScriptedServer(script, path=directory / "s")
    try:
        yield f"unix://{directory / 's'}"
    finally:
        server.stop()


def test_every_command_is_tried() -> None:
    """A new command stands in the table above, or this fails."""
    assert set(every_command()) == set(COMMANDS)


@pytest.mark.parametrize("script", [evil_answer, evil_problem, no_answer, wrong_types])
def test_nothing_that_a_server_says_acts_on_a_terminal(
    script: Callable[[Asked], Reply], tmp_path: Path, hal_home: Path
) -> None:
    """(M1 d, attempt 67) Every command, in every form of output: no sequence comes through, and what came is seen."""
    seen, faults = 0, []
    with attacker(script, hal_home) as url:
        for name, ways in COMMANDS.items():
            for way in ways:
                place = [] if "--home" in way or name in ("up", "agent", "down", "login") else ["--url", url]
                several = script is evil_answer and way is ways[0] and "-o" in _options(name)
                for form in FORMS if several else FORMS[:1]:
                    shown = Shown([*name.split(), *place, *form, *way], tmp_path)
                    faults.append("" if [*name.split(), *way] in RAW and script is evil_answer else shown.fault)
                    seen += MARK in shown.text
    assert Path("/dev/null").is_char_device()
    assert not any(faults), "\n\n".join(filter(None, faults))
    assert seen >= {evil_answer: 80, evil_problem: 60}.get(script, 10)


def _options(name: str) -> set[str]:
    context = click.Context(root)
    found: click.Command | None = root
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(context, word)
    assert found is not None
    return {option for parameter in found.params for option in parameter.opts}


def test_what_a_user_or_a_stranger_wrote_acts_on_no_terminal(own_hal: LiveHal) -> None:
    """(M1 a, b, attempts 65, 66) A real HAL: texts of jobs, paths of requests; also in the logs."""
    own_hal.up("--nodes", "1", "--cpus", "2", "--memory", "1GiB", "--tcp", str(free_port()))
    with own_hal.client() as client:
        gone = client.submit(["sh", "-c", "exit 3", EVIL.replace("\x00", "")], env={"A": EVIL}, workdir=f"/{EVIL}")
        held = client.submit([f"/{EVIL}"], hold=True, script=None)
        for job in (gone,):
            job.wait(DEADLINE_S)
        url = urlsplit(client.health().rest.split()[-1])
    with contextlib.closing(
        http.client.HTTPConnection(url.hostname or "", url.port or 0, timeout=DEADLINE_S)
    ) as stranger:
        stranger.request("POST", f"/v1/{quote(EVIL)}?{quote(EVIL)}", headers={"X-A": "\x9b2J", "User-Agent": "\x9bA"})
        assert stranger.getresponse().status == 401
    for words in (
        ["jobs", "--all"], ["show", gone.id], ["show", f"{gone.id}.0"], ["show", held.id], ["why", held.id],
        ["wait", gone.id], ["audit"], ["events"], ["status"], ["nodes"], ["node", "cordon", "n1", "--reason", EVIL],
        ["nodes", "n1"], ["status"], ["why", held.id], ["audit"],
    ):  # fmt: skip
        for form in FORMS if "-o" in _options(" ".join(words[: 1 + (words[0] == "node")])) else FORMS[:1]:
            assert not Shown([*words, *form], own_hal.root).fault
    assert MARK in Shown(["show", gone.id], own_hal.root).text
    assert MARK in Shown(["audit"], own_hal.root).text
    for log in filter(Path.is_file, (own_hal.root / "log").rglob("*")):
        found = ACTS.search(log.read_text(errors="surrogateescape"))
        assert found is None, f"{log.name}: {found}"
