"""What secrets cost a start: opening and framing them in the controller, and the way of a lone step at a real node.

At the node a real agent and keeper, the benchmark as their controller: from the start frame to the exit of `true`,
with three secrets and without, in turn. In the controller: three secrets of 4 KiB are found, opened and encoded.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import msgspec  # noqa: E402

from hal.core.model import StepId  # noqa: E402
from hal.daemons.controller.access.secret_keys import KeyRing  # noqa: E402
from hal.daemons.controller.access.secrets import OwnerKind, SecretBook, SecretId  # noqa: E402
from hal.wire.frames.agent_keeper import Start, StepStart, StepTemplate  # noqa: E402
from hal.wire.frames.controller_agent import JobSecrets, Secrets  # noqa: E402
from tests.daemons.agent.test_agent_process import Node  # noqa: E402

T = TypeVar("T")
LONE: Final = 200
WARM: Final = 30
REST_S: Final = 0.015
OPENED: Final = 2_000
NAMES: Final = ("db-password", "deploy-key", "s3-key")
VALUE: Final = os.urandom(4 << 10)
TARGET_MS: Final = 2.0
"""What a secret may add to a start."""


def new_id() -> str:
    return os.urandom(16).hex()


def framed(job: int) -> Secrets:
    return Secrets(values=(VALUE,) * len(NAMES), jobs=(JobSecrets(job, tuple((n, i) for i, n in enumerate(NAMES))),))


def opened_ms() -> float:
    """Median milliseconds in the controller for one start with three secrets."""
    book = SecretBook()
    book.ring = KeyRing().with_new_key(new_id)
    for name in NAMES:
        which = SecretId(OwnerKind.USER, "bob", name)
        book.put(book.sealed(which, VALUE, version=1, now_ms=1, by="bob", new_id=new_id))
    took = []
    for job in range(OPENED):
        begin = time.perf_counter()
        values = tuple(book.value(book.find(name, user="bob", account="", accounts={})) for name in NAMES)
        msgspec.msgpack.encode(Secrets(values=values, jobs=framed(job).jobs))
        took.append((time.perf_counter() - begin) * 1000)
    return statistics.median(took)


class Controller(Node):
    """The benchmark as the agent's controller."""

    def ended(self, job: int) -> None:
        """Wait until it has."""
        deadline_s = time.monotonic() + 20.0
        while StepId(job, 0, 1, 0) not in self.exits:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"job {job} does not end; the latest frames: {self.frames[-3:]}")
            self._serve()


def lone(node: Controller) -> dict[bool, list[float]]:
    """Milliseconds from start to exit, with secrets and without, in turn."""
    took: dict[bool, list[float]] = {True: [], False: []}
    job = 0
    for round_number in range(LONE + WARM):
        for secret in (False, True):
            job += 1
            time.sleep(REST_S)
            names = NAMES if secret else ()
            template = StepTemplate(command=("true",), env={"PATH": os.environ["PATH"]}, secrets=names)
            steps = (StepStart(StepId(job, 0, 1, 0), 0, f"token-{job}", ("n1",), 0, 1, 0),)
            begin = time.perf_counter()
            if secret:
                node.send(framed(job))
            node.send(Start(epoch=3, stamp_boot_ms=node.stamp, templates=(template,), steps=steps))
            node.ended(job)
            if round_number >= WARM:
                took[secret].append((time.perf_counter() - begin) * 1000)
    return took


def report(bench: str, value: float, target: float | None, note: str) -> None:
    line: dict[str, object] = {"bench": bench, "value": round(value, 3), "unit": "ms", "better": "lower"}
    if target is not None:
        line |= {"target": target, "holds": value <= target}
    print(json.dumps(line | {"note": note}))


def at_a_node(measure: Callable[[Controller], T]) -> T:
    """What is measured at a real agent and keeper of their own."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        (home / "hal.toml").write_text("[access]\nrun_as_owner = true\n")
        node = Controller(home)
        try:
            node.until(lambda: node.stamp)
            return measure(node)
        finally:
            node.close()


def main() -> None:
    report("secrets-opened", opened_ms(), TARGET_MS, "three of 4 KiB found, opened and encoded, median")
    took = at_a_node(lone)
    plain = statistics.median(took[False])
    report("secrets-lone-step-none", plain, None, "start frame to exit frame of `true`, median")
    report("secrets-added", statistics.median(took[True]) - plain, TARGET_MS, "to such a step by three secrets")


if __name__ == "__main__":
    main()
