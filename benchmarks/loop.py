"""The longest turn of the controller's loop under the worst requests that a user role can send.

A second process asks the private socket for `/v1/version` every millisecond, which needs no more than one free turn of
the loop, and keeps the longest answer time; meanwhile one worst request after another is sent over TCP with a token of
role user, bodies up to 8 MiB. `idle`: the same with nothing sent, so that the noise of the machine is known. Each case
is done `ROUNDS` times, and the best is reported: what the machine did beside cannot be taken out of a single one.

    python benchmarks/loop.py [WORD …]       only cases whose name contains one of the words
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from _private_hal import private_hal, say
from hal.runtime.home import Home

TARGET_MS: Final = 100.0
BODY: Final = (8 << 20) - 4096
ROUNDS: Final = 2
TASKS: Final = 1_000_000
SCATTERED: Final = 10_000
TRIES: Final = 100
"""Of a request that is told to come back later (429)."""
CONFIG: Final = "[access]\nrun_as_owner = true\nrequests_per_s = 100000\nburst = 100000\n"


class User:
    """Somebody with a token of role user, over TCP."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """Status and plain answer; asked again while it is too much at once."""
        for _ in range(TRIES):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
            try:
                connection.request(method, path, body, self._head)
                answer = connection.getresponse()
                text = answer.read()
            finally:
                connection.close()
            if answer.status != 429:
                return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
            time.sleep(0.5)
        raise RuntimeError(f"{method} {path}: always too much")

    def post(self, path: str, value: Any) -> Any:
        """Of something that must succeed."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        status, answer = self.ask("POST", path, body)
        assert status in (200, 201), (status, str(answer)[:500])
        return answer

    def refused(self, path: str, body: bytes) -> None:
        """Of something that is refused in the end."""
        status, answer = self.ask("POST", path, body)
        assert status in (400, 413), (status, str(answer)[:500])

    def array(self, **fields: Any) -> str:
        """A new array on hold."""
        spec = {"command": ["true"], "array": TASKS, "hold": True} | fields
        return str(self.post("/v1/jobs", spec)["ids"][0])


# ── the probe ─────────────────────────────────────────────────────────────────────────────────────────────────────


def probe(path: str, pipe: Connection) -> None:
    """Ask every millisecond until told to stop; the longest time is sent back whenever it is asked for."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        worst = 0.0
        while True:
            began = time.perf_counter()
            line.sendall(b"GET /v1/version HTTP/1.1\r\nHost: hal\r\n\r\n")
            text = b""
            while b"}" not in text:
                text += line.recv(65536)
            worst = max(worst, time.perf_counter() - began)
            if pipe.poll():
                if pipe.recv() == "stop":
                    return
                pipe.send(worst)
                worst = 0.0
            time.sleep(0.001)


@contextmanager
def probing(home: Path) -> Iterator[Callable[[], float]]:
    """Gives the longest answer time since it was last asked, in ms."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=probe, args=(str(Home(home).api_socket()), its), daemon=True)
    process.start()

    def longest_ms() -> float:
        ours.send("longest")
        return float(ours.recv()) * 1000

    try:
        yield longest_ms
    finally:
        ours.send("stop")
        process.join()


# ── the worst requests ────────────────────────────────────────────────────────────────────────────────────────────


def filled(unit: Callable[[int], bytes], head: bytes, tail: bytes, most: int = 100_000) -> bytes:
    """As many units between head and tail as a body holds."""
    parts: list[bytes] = []
    size = len(head) + len(tail)
    while len(parts) < most:
        one = unit(len(parts))
        size += len(one) + 1
        if size > BODY:
            break
        parts.append(one)
    return head + b",".join(parts) + tail


def scattered(user: User) -> None:
    """Cancels of 10,000 scattered tasks, five times, then the job."""
    job = user.array()
    for part in range(5):
        chosen = random.Random(part).sample(range(TASKS), SCATTERED)
        user.post("/v1/jobs/cancel", {"ids": [f"{job}.{task}" for task in chosen]})
    user.post("/v1/jobs/cancel", {"ids": [job]})


def scattered_window(user: User) -> None:
    """The same of an array that waits, with a limit of tasks at once; held, released and run again."""
    job = user.array(
        hold=False, array=f"0-{TASKS - 1}%{TASKS // 2}", request={"cpu": 1}, walltime="1h", command=["sleep", "600"]
    )
    for part in range(3):
        ids = [f"{job}.{task}" for task in random.Random(part).sample(range(TASKS), SCATTERED)]
        user.post("/v1/jobs/hold", {"ids": ids})
        user.post("/v1/jobs/release", {"ids": ids})
        user.post("/v1/jobs/cancel", {"ids": ids})
        user.post("/v1/jobs/requeue", {"ids": ids})
    user.post("/v1/jobs/hold", {"ids": [job]})
    user.post("/v1/jobs/release", {"ids": [job]})
    user.ask("PATCH", f"/v1/jobs/{job}", b'{"priority": -1, "begin_at_ms": 1}')
    user.ask("GET", f"/v1/jobs/{job}/why")
    user.ask("GET", f"/v1/jobs/{job}/tasks?limit=1000")
    user.post("/v1/jobs/cancel", {"ids": [job]})


def empty_env(user: User) -> None:
    """One job whose env has a million entries, refused."""
    user.refused("/v1/jobs", filled(lambda n: b'"A%d":""' % n, b'{"command":["true"],"env":{', b"}}", 1_000_000))


def same_env(user: User) -> None:
    """The same key again and again."""
    user.refused("/v1/jobs", filled(lambda _: b'"A":""', b'{"command":[""],"env":{', b"}}", 2_000_000))


def many_words(user: User) -> None:
    """A command of two million empty words."""
    user.refused("/v1/jobs", filled(lambda _: b'""', b'{"command":[', b"]}", 4_000_000))


def brackets(user: User) -> None:
    """Eight million opening brackets, and the same as a list of empty jobs."""
    user.refused("/v1/jobs", b"[" * BODY)
    user.refused("/v1/jobs", filled(lambda _: b"{}", b'{"jobs":[', b"]}", 4_000_000))


def chain(user: User) -> None:
    """A dry run of as many jobs as a body holds, each after the one before."""

    def one(n: int) -> bytes:
        after = b',"dependencies":["afterok:j%d"]' % (n - 1) if n else b""
        return b'{"command":["a"],"name":"j%d"%s}' % (n, after)

    user.post("/v1/jobs?dry_run=1", filled(one, b'{"jobs":[', b"]}"))


def fan(user: User) -> None:
    """A dry run of jobs that each wait for the same hundred."""
    names = b",".join(b'"afterany:j%d"' % n for n in range(100))

    def one(n: int) -> bytes:
        after = b',"dependencies":[%s]' % names if n >= 100 else b""
        return b'{"command":["a"],"name":"j%d"%s}' % (n, after)

    user.post("/v1/jobs?dry_run=1", filled(one, b'{"jobs":[', b"]}"))


def many_jobs(user: User) -> None:
    """100,000 different jobs, then cancels of all by a filter, 10,000 at a time."""
    body = filled(lambda n: b'{"command":["a%d"],"name":"x%d","hold":true}' % (n, n), b'{"jobs":[', b"]}")
    user.post("/v1/jobs", body)
    while user.post("/v1/jobs/cancel", {"filter": {"state": "live"}})["results"]:
        pass


def equal_jobs(user: User) -> None:
    """100,000 equal jobs that wait, held, released and cancelled by a filter."""
    user.post("/v1/jobs", b'{"jobs":[' + b",".join([b'{"command":["a"],"hold":true}'] * 100_000) + b"]}")
    for action in ("hold", "release", "cancel"):
        user.post(f"/v1/jobs/{action}", {"filter": {"state": "live"}})
    while user.post("/v1/jobs/cancel", {"filter": {"state": "live"}})["results"]:
        pass


def again(user: User) -> None:
    """Ended tasks by the thousand, run again one by one."""
    job = user.array(array=20_000)
    user.post("/v1/jobs/cancel", {"ids": [f"{job}.{task}" for task in range(0, 20_000, 2)]})
    user.post("/v1/jobs/requeue", {"ids": [f"{job}.{task}" for task in range(0, 20_000, 2)]})
    user.post("/v1/jobs/cancel", {"ids": [job]})
    user.post("/v1/jobs/requeue", {"ids": [f"{job}.{task}" for task in range(0, 20_000, 2)]})
    user.post("/v1/jobs/cancel", {"ids": [job]})


def by_task(user: User) -> None:
    """An array that follows another task by task, whose tasks are cancelled here and there."""
    answer = user.post(
        "/v1/jobs",
        {
            "jobs": [
                {"name": "a", "command": ["a"], "array": TASKS, "hold": True},
                {"name": "b", "command": ["b"], "array": TASKS, "dependencies": ["aftercorr:a"]},
            ]
        },
    )
    first, second = answer["ids"]
    for part in range(2):
        chosen = random.Random(part).sample(range(TASKS), SCATTERED)
        user.post("/v1/jobs/cancel", {"ids": [f"{first}.{task}" for task in chosen]})
    user.post("/v1/jobs/cancel", {"ids": [first, second]})


def dependants(user: User) -> None:
    """One job that thousands wait for, cancelled; and `why` of one that waits for 10,000."""
    many = b",".join(b'"afterany:j%d"' % n for n in range(1, 10_000))
    jobs = [b'{"command":["a"],"name":"first","hold":true}']
    jobs += [b'{"command":["a"],"name":"j%d","dependencies":["afterok:first"]}' % n for n in range(1, 60_000)]
    jobs += [b'{"command":["a"],"name":"last","dependencies":[%s]}' % many]
    ids = user.post("/v1/jobs", b'{"jobs":[' + b",".join(jobs) + b"]}")["ids"]
    user.ask("GET", f"/v1/jobs/{ids[-1]}/why")
    user.ask("GET", f"/v1/jobs/{ids[0]}/graph")
    user.ask("GET", f"/v1/events?job={ids[0]}&limit=1000")
    user.post("/v1/jobs/cancel", {"ids": [ids[0]]})


CASES: Final = (
    scattered,
    scattered_window,
    empty_env,
    same_env,
    many_words,
    brackets,
    chain,
    fan,
    many_jobs,
    equal_jobs,
    again,
    by_task,
    dependants,
)


def main() -> int:
    words = sys.argv[1:]
    port = free_port()
    with private_hal("--cpus", "1", "--tcp", str(port), config=CONFIG) as home:
        made = subprocess.run(
            [sys.executable, "-m", "hal.cli.main", "--home", str(home), "api-token", "create", "bob", "-o", "json"],
            check=True,
            capture_output=True,
            text=True,
        )
        user = User(port, secret_of(json.loads(made.stdout)))
        with probing(home) as longest_ms:
            longest_ms()
            time.sleep(3)
            say("loop-longest-turn-idle", longest_ms(), "ms", higher=False)
            for case in CASES:
                name = case.__name__.replace("_", "-")
                if words and not any(word in name for word in words):
                    continue
                found: list[float] = []
                took: list[float] = []
                for _ in range(int(os.environ.get("ROUNDS", ROUNDS))):
                    longest_ms()
                    began = time.perf_counter()
                    case(user)
                    took.append(time.perf_counter() - began)
                    found.append(longest_ms())
                rounds = [round(one) for one in found]
                more = {"rounds": rounds, "took_s": round(min(took), 1)}
                say(f"loop-longest-turn-{name}", min(found), "ms", TARGET_MS, higher=False, **more)
    return 0


def free_port() -> int:
    """A TCP port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def secret_of(made: dict[str, Any]) -> str:
    """What `hal api-token create` gave."""
    return str(made["secret"])


if __name__ == "__main__":
    sys.exit(main())
