"""What a node sends of its steps' outputs: each line once, secrets hidden, bounded, not what jobs keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import output_prefix
from hal.daemons.agent.log_tails import LogTails
from hal.daemons.agent.output_tails import BEHIND_BYTES, STREAM_BYTES, TURN_MS, OutputTails, lines_of
from hal.planes.observability.telemetry import ReceivedLines, Telemetry
from hal.runtime.interface import Runtime, UnixAddress
from hal.runtime.telemetry_sender import TelemetrySender
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    Start,
    Started,
    StepExit,
    StepStart,
    StepStarted,
    StepTemplate,
    Usage,
)
from hal.wire.frames.telemetry import TELEMETRY, LogLine
from hal.wire.roles import Role

SOCKET = "observability-wire.sock"
STEP = StepId(7, 0, 1, 0)


def start_of(step: StepId, **env: str) -> Start:
    """The frame that starts a step."""
    template = StepTemplate(command=("true",), env={"HAL_JOB_ID": str(step.job), **env}, user="alice")
    one = StepStart(step, 0, "t", ("n1",), 0, 1, 1)
    return Start(epoch=1, stamp_boot_ms=1, templates=(template,), steps=(one,))


def exit_of(step: StepId) -> Exits:
    """The report of its end."""
    return Exits(exits=(StepExit(step, ExitCause.EXITED, 0, 0, 1, 2, Usage(), ""),))


def run_node(outputs: Path, act: Callable[[OutputTails], None], *, secrets: tuple[bytes, ...] = ()) -> list[LogLine]:
    """A node and a collector; `act` is called when the node knows the collector. Returns what that has taken."""

    async def tail(runtime: Runtime, sender: TelemetrySender) -> None:
        tails = OutputTails(runtime, outputs, outputs.parent / "note", sender, lambda _: secrets)
        act(tails)
        await tails.run()

    return run_tails(tail)


def run_tails(tail: Callable[[Runtime, TelemetrySender], Awaitable[None]]) -> list[LogLine]:
    """The same, for any part of an agent that sends lines."""
    taken: list[LogLine] = []

    async def collect(runtime: Runtime) -> None:
        telemetry = Telemetry(runtime)

        def take(got: ReceivedLines) -> None:
            taken.extend(got.lines)

        telemetry.received("lines", take)
        await runtime.listen(UnixAddress(runtime.paths.socket_dir() / SOCKET), telemetry.serve, conversation=TELEMETRY)
        await runtime.stopping.wait()

    async def node(runtime: Runtime) -> None:
        sender = TelemetrySender(runtime, Role.AGENT, "n1")
        runtime.spawn_task(sender.run(), "sender")
        sender.dial((f"unix:{runtime.paths.socket_dir() / SOCKET}",))
        await tail(runtime, sender)

    with VirtualWorld(1) as world:
        host = world.host("h")
        world.start(host, "observability", collect)
        world.start(host, "agent-n1", node)
        world.run_for(20 * TURN_MS)
    return taken


def write(outputs: Path, step: StepId, data: bytes, stream: str = "stdout") -> None:
    """As a step does."""
    (outputs / str(step.job)).mkdir(parents=True, exist_ok=True)
    (outputs / str(step.job) / f"{output_prefix(step)}.{stream}").write_bytes(data)


def test_lines_of_a_step_arrive_once_with_its_user(tmp_path: Path) -> None:
    """While it runs, and the last one, without an end of line, when it has ended."""
    outputs = tmp_path / "steps"
    write(outputs, STEP, b"one\ntwo\nthree")
    write(outputs, STEP, b"oops\n", "stderr")

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))
        tails.hear(exit_of(STEP))

    lines = run_node(outputs, act)
    assert [(one.stream, one.text, one.offset) for one in lines] == [
        ("stdout", "one", 0), ("stdout", "two", 4), ("stdout", "three", 8), ("stderr", "oops", 0),
    ]  # fmt: skip
    assert lines[0].fields == {"user": "alice"}


def test_safety_secrets_that_hal_has_delivered_are_hidden(tmp_path: Path) -> None:
    """Whatever prints them; of a value of several lines, each line."""
    outputs = tmp_path / "steps"
    write(outputs, STEP, b"password is hunter2-hunter2\nkey: LINE-ONE\nplain\n")

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))

    lines = run_node(outputs, act, secrets=(b"hunter2-hunter2\n", b"LINE-ONE\nLINE-TWO"))
    assert [one.text for one in lines] == ["password is [hidden]", "key: [hidden]", "plain"]


@pytest.mark.parametrize("before", range(STREAM_BYTES - 9, STREAM_BYTES + 2))
def test_safety_a_secret_on_the_edge_of_a_reading_is_hidden(tmp_path: Path, before: int) -> None:
    """A line may be longer than what is read of it at once."""
    outputs, secret = tmp_path / "steps", b"hunter2-"
    write(outputs, STEP, b"x" * before + secret + b"y" * STREAM_BYTES + b"\n")

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))

    lines = run_node(outputs, act, secrets=(secret,))
    assert "".join(one.text for one in lines) == "x" * before + "[hidden]" + "y" * STREAM_BYTES


@pytest.mark.parametrize("kept", [1, 7, 8, 9])
def test_safety_a_secret_that_a_gap_tears_is_not_sent(tmp_path: Path, kept: int) -> None:
    """What is sent after a gap begins with the next line, or behind what could be the end of a secret."""
    outputs, secret = tmp_path / "steps", b"hunter2-"
    write(outputs, STEP, b"x" * 2 * BEHIND_BYTES + secret + b"y" * (STREAM_BYTES - kept))

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))
        tails.hear(exit_of(STEP))

    lines = run_node(outputs, act, secrets=(secret,))
    assert "bytes were not sent" in lines[0].text
    assert set("".join(one.text for one in lines[1:]).replace("[hidden]", "")) == {"y"}


def test_a_job_that_keeps_its_output_to_itself_sends_nothing(tmp_path: Path) -> None:
    """It has set HAL_COLLECT_OUTPUT to 0; nor is anything sent of a job of which nothing is known."""
    outputs, other = tmp_path / "steps", StepId(8, 0, 1, 0)
    write(outputs, STEP, b"mine\n")
    write(outputs, other, b"unknown\n")

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP, HAL_COLLECT_OUTPUT="0"))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1), StepStarted(other, 1, 1))))
        tails.hear(exit_of(other))

    assert run_node(outputs, act) == []


def test_an_output_that_grows_too_fast_is_sent_with_a_gap_that_says_so(tmp_path: Path) -> None:
    """Its end is sent, and how much is left out."""
    outputs = tmp_path / "steps"
    write(outputs, STEP, b"x" * 99 + b"\n" + b"y" * 2 * BEHIND_BYTES + b"\nlast\n")

    def act(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))

    lines = run_node(outputs, act)
    assert "bytes were not sent to the collector" in lines[0].text
    assert lines[-1].text == "last"


def test_another_agent_goes_on_where_the_one_before_had_read(tmp_path: Path) -> None:
    """It knows the job from the note, and does not send again what was sent."""
    outputs = tmp_path / "steps"
    write(outputs, STEP, b"one\n")

    def begin(tails: OutputTails) -> None:
        tails.begin(start_of(STEP))
        tails.hear(Started(steps=(StepStarted(STEP, 1, 1),)))

    assert [one.text for one in run_node(outputs, begin)] == ["one"]
    write(outputs, STEP, b"one\ntwo\n")
    assert [one.text for one in run_node(outputs, lambda tails: tails.holds((STEP,)))] == ["two"]


def test_a_long_line_is_sent_in_pieces() -> None:
    """Each but the last says that it goes on; offsets are those of lines."""
    lines = list(lines_of(STEP, "stdout", b"a" * 10_000 + b"\nb\n", 5, 1, "alice"))
    assert [(len(one.text), "part" in one.fields, one.offset) for one in lines] == [
        (8_192, True, 5), (1_808, False, 5), (1, False, 10_006),
    ]  # fmt: skip


def test_a_joined_node_sends_what_its_own_processes_log_once(tmp_path: Path) -> None:
    """Not those of another node in the same home; the next agent goes on behind what was sent."""
    line = '{"timestamp":"2026-11-24T20:18:00Z","level":"warning","process":"keeper-n1","event":"%s","job":7}\n'
    (tmp_path / "keeper-n1.log").write_text(line % "one")
    (tmp_path / "keeper-n2.log").write_text(line % "of another node")

    async def tail(runtime: Runtime, sender: TelemetrySender) -> None:
        await LogTails(runtime, tmp_path, "n1", tmp_path / "note", sender).run()

    (sent,) = run_tails(tail)
    assert (sent.component, sent.text, sent.fields) == ("keeper", "one job=7", {"job": "7"})
    (tmp_path / "keeper-n1.log").write_text(line % "one" + line % "two")
    assert [one.text for one in run_tails(tail)] == ["two job=7"]
