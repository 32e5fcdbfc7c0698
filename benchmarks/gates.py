"""What gates cost at a node: a real agent and keeper, the benchmark as their controller, a service in this process.

The time of a lone step from its start frame to its exit frame, with a gate that is satisfied at once, with one in each
phase, and without any; what the question alone takes, between the agent's code and the service; and how many steps a
second pass one node, in bursts on one service.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from hal.core.model import StepId  # noqa: E402
from hal.core.model.gate import GatePhase, GatePolicy  # noqa: E402
from hal.core.model.gate_protocol import MAX_ANSWER_BYTES  # noqa: E402
from hal.runtime.service_socket import ask_service  # noqa: E402
from hal.wire.frames.agent_keeper import Start, StepStart, StepTemplate, TemplateGate  # noqa: E402
from tests.daemons.agent.test_agent_process import Node  # noqa: E402

LONE: Final = 200
REST_S: Final = 0.015
WARM: Final = 30
BURST: Final = 300
ASKS: Final = 2_000
READY: Final = b'{"state":"ready"}\n'


def serve(path: Path) -> None:
    """A service that is always satisfied, on a loop of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(READY)
        await writer.drain()
        writer.close()

    async def main() -> None:
        os.chdir(path.parent)
        server = await asyncio.start_unix_server(answer, path.name, backlog=256)
        listening.set()
        await server.serve_forever()

    listening = threading.Event()
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    listening.wait()


def gate(phase: GatePhase) -> TemplateGate:
    return TemplateGate("ready", phase, 60_000, GatePolicy.FAIL, "argument")


KINDS: Final[dict[str, tuple[TemplateGate, ...]]] = {
    "none": (),
    "preparing": (gate(GatePhase.PREPARING),),
    "both": (gate(GatePhase.PREPARING), gate(GatePhase.FINALISING)),
}


class Controller(Node):
    """The benchmark as the agent's controller."""

    def ended(self, job: int, tasks: int = 1) -> None:
        """Wait until all of them have."""
        deadline_s = time.monotonic() + 20.0
        while not all(StepId(job, task, 1, 0) in self.exits for task in range(tasks)):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"job {job} does not end; the latest frames: {self.frames[-3:]}")
            self._serve()


def start(node: Controller, job: int, tasks: int, gates: tuple[TemplateGate, ...]) -> None:
    template = StepTemplate(command=("true",), env={"PATH": os.environ["PATH"]}, gates=gates)
    steps = tuple(
        StepStart(StepId(job, task, 1, 0), 0, f"token-{job}.{task}", ("n1",), 0, 1, 0) for task in range(tasks)
    )
    node.send(Start(epoch=3, stamp_boot_ms=node.stamp, templates=(template,), steps=steps))


def lone(node: Controller) -> dict[str, list[float]]:
    """Milliseconds from start to exit; the kinds in turn, so that what disturbs the machine disturbs all of them."""
    took: dict[str, list[float]] = {name: [] for name in KINDS}
    job = 0
    for round_number in range(LONE + WARM):
        for name, gates in KINDS.items():
            job += 1
            time.sleep(REST_S)  # what followed the step before, like the end of its note, is over
            begin = time.perf_counter()
            start(node, job, 1, gates)
            node.ended(job)
            if round_number >= WARM:
                took[name].append((time.perf_counter() - begin) * 1000)
    return took


def burst(node: Controller, gates: tuple[TemplateGate, ...], job: int) -> float:
    """Steps a second, of many at once."""
    begin = time.perf_counter()
    start(node, job, BURST, gates)
    node.ended(job, BURST)
    return BURST / (time.perf_counter() - begin)


def questions(path: Path) -> float:
    """Median milliseconds of one question, one after the other."""

    async def ask() -> list[float]:
        took = []
        for _ in range(ASKS):
            begin = time.perf_counter()
            await ask_service(path, b"{}\n", timeout_ms=10_000, most=MAX_ANSWER_BYTES)
            took.append((time.perf_counter() - begin) * 1000)
        return took

    return statistics.median(asyncio.run(ask()))


def report(bench: str, value: float, unit: str, target: float | None = None, *, note: str = "") -> None:
    line: dict[str, object] = {"bench": bench, "value": round(value, 3), "unit": unit, "better": "lower"}
    if unit == "steps/s":
        line["better"] = "higher"
    if target is not None:
        line |= {"target": target, "holds": value <= target}
    print(json.dumps(line | ({"note": note} if note else {})))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        (home / "gates").mkdir(mode=0o700)
        (home / "hal.toml").write_text("[access]\nrun_as_owner = true\n")
        serve(home / "gates" / "ready.sock")
        node = Controller(home)
        try:
            node.until(lambda: node.stamp)
            took = lone(node)
            plain = statistics.median(took["none"])
            report("gate-lone-step-none", plain, "ms", note="start frame to exit frame of `true`, median")
            for name in ("preparing", "both"):
                more = statistics.median(took[name]) - plain
                report(f"gate-added-{name}", more, "ms", 1.0 if name == "preparing" else None, note="to such a step")
            for number, (name, gates) in enumerate(KINDS.items()):
                report(f"gate-burst-{name}", burst(node, gates, 100_000 + number), "steps/s", note=f"{BURST} at once")
            report("gate-question", questions(home / "gates" / "ready.sock"), "ms", note="connect, ask, answer; median")
        finally:
            node.close()


if __name__ == "__main__":
    main()
