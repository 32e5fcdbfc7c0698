"""A field that is added to the template of steps reaches the step without any change on the way."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import defstruct

from hal.core.model import StepId
from hal.core.model.gate import GatePhase, GatePolicy
from hal.daemons.agent.keeper.helper_link import plain_template
from hal.daemons.agent.keeper.ports import Launch
from hal.daemons.controller.nodes.order_frames import StartLease, start_frames
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import AGENT_KEEPER, Start, StepStart, StepTemplate, TemplateGate, TemplateService
from tests.daemons.agent.keeper.in_memory import Bench, Recorder

STEP = StepId(7, 0, 1, 0)
Wider = defstruct("Wider", [("colour", str, "")], bases=(StepTemplate,), frozen=True, kw_only=True, omit_defaults=True)
"""Tomorrow's template."""
WiderStart = defstruct("WiderStart", [("shade", str, "")], bases=(StepStart,), frozen=True, array_like=True)
START = StepStart(STEP, STEP.job, "token", ("n1",), 0, 1, 1_000)


class Launches(Recorder):
    """A spawner that remembers what it was to launch."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []

    def launch(self, launches: Sequence[Launch]) -> None:
        self.launches += launches


def frame_with(template: StepTemplate, start: StepStart = START) -> Start:
    """The one frame that the controller sends for it."""
    (frame,) = start_frames({STEP.job: template}, [start], StartLease(1, 0, 60_000))
    return frame


def test_a_field_added_to_the_template_reaches_the_helper_that_spawns_the_step() -> None:
    """From what the plane orders through the frame and the keeper's decisions; `colour` is known to none of them."""
    bench = Bench()
    bench.core._spawner = spawner = Launches()
    bench.attach()
    frame = frame_with(Wider(command=("true",), colour="blue"))
    bench.core.received(msgspec.structs.replace(frame, stamp_boot_ms=bench.stamp), bench.now)
    bench.core.wake(bench.now)
    (launch,) = spawner.launches
    assert plain_template(launch.template, {})["colour"] == "blue"


def test_a_field_added_to_a_start_reaches_the_frame() -> None:
    """Beside the template's position, which the frame gives it."""
    start = WiderStart(*(getattr(START, name) for name in START.__struct_fields__), "dark")
    (sent,) = frame_with(StepTemplate(command=("true",)), start).steps
    assert (sent.shade, sent.template) == ("dark", 0)  # type: ignore[attr-defined]


def test_every_field_of_the_template_crosses_the_wire() -> None:
    """Each with a value that is not its default."""
    other = {str: "x", int: 3, bool: True, dict: {"A": "b"}, tuple: ("a",), type(None): 0o27}
    gate = TemplateGate("stage-in", GatePhase.PREPARING, 3, GatePolicy.FAIL)
    service = TemplateService(ports=(("http", 8080),))
    fields = msgspec.structs.asdict(StepTemplate())
    plain = {name: other[type(value)] for name, value in fields.items() if name not in ("gates", "service")}
    values = {**plain, "gates": (gate,), "service": service}
    frame = frame_with(StepTemplate(**values))
    assert FrameDecoder(AGENT_KEEPER).feed(encode(frame)) == [frame]
