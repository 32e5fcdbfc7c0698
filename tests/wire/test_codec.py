"""The codec: any frame survives any splitting of the stream, and bytes that are no frames give one clear error."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as shapes

from hal.core.model.ids import StepId
from hal.wire.codec import LENGTH_BYTES, FrameDecoder, encode
from hal.wire.errors import FrameTooLongError, MalformedFrameError
from hal.wire.examples import EXAMPLES
from hal.wire.frames.agent_keeper import ExitsAck, LogChunk, Stream
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.conversation import MAX_FRAME_BYTES, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import SESSIONS
from hal.wire.frames.telemetry import MAX_TELEMETRY_FRAME_BYTES, TELEMETRY
from tests.examples import examples

FRAME_KINDS = CONTROLLER_AGENT.kinds
"""Every frame: the conversation of controller and agent has those of the others, too."""


def values_of(kind: shapes.Type) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    match kind:
        case shapes.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values_of(field.type) for field in fields})
        case shapes.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case shapes.VarTupleType(item_type=item):
            return st.lists(values_of(item), max_size=4).map(tuple)
        case shapes.TupleType(item_types=items):
            return st.tuples(*(values_of(item) for item in items))
        case shapes.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=4)
        case shapes.StrType():
            return st.text(max_size=40)
        case shapes.IntType(ge=least, le=most):
            return st.integers(-(2**63) if least is None else least, 2**63 - 1 if most is None else most)
        case shapes.FloatType(ge=least, le=most):
            return st.floats(least, most, allow_nan=False)
        case shapes.BoolType():
            return st.booleans()
        case shapes.BytesType():
            return st.binary(max_size=200)
        case shapes.NoneType():
            return st.none()
        case shapes.UnionType(types=kinds):
            return st.one_of(*(values_of(one) for one in kinds))
        case _:
            raise TypeError(f"no strategy for {kind}")


FRAMES = st.sampled_from(FRAME_KINDS).flatmap(lambda kind: values_of(shapes.type_info(kind)))


@given(FRAMES)
def test_every_frame_survives_the_wire(frame: Frame) -> None:
    """Decoding what was encoded gives an equal frame of the same type."""
    decoded = FrameDecoder(CONTROLLER_AGENT).feed(encode(frame))
    assert decoded == [frame]
    assert type(decoded[0]) is type(frame)


@given(st.lists(FRAMES, min_size=1, max_size=5), st.data())
def test_any_split_of_the_stream_gives_the_same_frames(frames: list[Frame], data: st.DataObject) -> None:
    """The kernel may hand over the bytes in whatever pieces; frames come out whole and in order."""
    stream = b"".join(encode(frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder(CONTROLLER_AGENT)
    out: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += decoder.feed(stream[start:end])
    assert out == frames
    assert decoder.pending_bytes == 0


def test_a_stream_of_single_bytes_gives_the_same_frames() -> None:
    """The worst split: each byte alone."""
    for conversation in (CONTROLLER_AGENT, SESSIONS, TELEMETRY):
        examples = [example for example in EXAMPLES if conversation.includes(example)]
        decoder: FrameDecoder[Frame] = FrameDecoder(conversation)
        out = [frame for example in examples for byte in encode(example) for frame in decoder.feed(bytes([byte]))]
        assert out == examples


def test_a_frame_over_the_limit_of_its_conversation_is_refused_before_it_is_read() -> None:
    """Telemetry may be shorter than other frames: its length alone is refused."""
    length = (MAX_TELEMETRY_FRAME_BYTES + 1).to_bytes(LENGTH_BYTES, "little")
    assert FrameDecoder(CONTROLLER_AGENT).feed(length) == []
    with pytest.raises(FrameTooLongError, match="at most 1048576"):
        FrameDecoder(TELEMETRY).feed(length)


@given(FRAMES, st.data())
def test_a_truncated_frame_gives_nothing_and_is_seen_as_pending(frame: Frame, data: st.DataObject) -> None:
    """Nothing is made of a part of a frame, and at the end of the stream the rest is known to be missing."""
    whole = encode(frame)
    part = whole[: data.draw(st.integers(1, len(whole) - 1))]
    decoder = FrameDecoder(CONTROLLER_AGENT)
    assert decoder.feed(part) == []
    assert decoder.pending_bytes == len(part)


@settings(max_examples=examples(300))
@given(st.binary(max_size=300))
def test_garbage_gives_frames_or_one_clear_error_and_never_anything_else(garbage: bytes) -> None:
    """Whatever the bytes, the decoder raises only its own error, and after it refuses everything."""
    decoder = FrameDecoder(CONTROLLER_AGENT)
    if refusal(decoder, garbage):
        assert refusal(decoder, encode(Goodbye()))


@settings(max_examples=examples(300))
@given(FRAMES, st.data())
def test_a_damaged_frame_never_raises_anything_but_the_wires_own_error(frame: Frame, data: st.DataObject) -> None:
    """One byte of the body is changed: it decodes to some frame, or is refused."""
    damaged = bytearray(encode(frame))
    at = data.draw(st.integers(LENGTH_BYTES, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    text = refusal(FrameDecoder(CONTROLLER_AGENT), bytes(damaged))
    assert text == "" or "is not a known frame" in text


def test_the_good_frames_before_a_bad_one_are_not_lost() -> None:
    """Two frames, then a body of four 0xc1 (a byte that MessagePack never uses): the error carries the two."""
    good = [Goodbye(code="a"), Goodbye(code="b")]
    stream = b"".join(encode(frame) for frame in good) + b"\x04\0\0\0" + b"\xc1" * 4
    with pytest.raises(MalformedFrameError) as caught:
        FrameDecoder(CONTROLLER_AGENT).feed(stream)
    assert list(caught.value.frames) == good


def test_a_length_over_the_limit_is_refused_before_its_body_comes() -> None:
    """Four bytes suffice: the announced 8 MiB + 1 are never waited for."""
    decoder = FrameDecoder(CONTROLLER_AGENT)
    with pytest.raises(FrameTooLongError, match=str(MAX_FRAME_BYTES + 1)):
        decoder.feed((MAX_FRAME_BYTES + 1).to_bytes(LENGTH_BYTES, "little"))


def test_a_frame_over_the_limit_is_not_sent() -> None:
    """The sender is told, with the kind of frame and its size, instead of the receiver having to close."""
    chunk = LogChunk(
        request=1,
        step=StepId(1, 0, 1, 0),
        stream=Stream.STDOUT,
        offset=0,
        data=bytes(MAX_FRAME_BYTES),
        size=0,
        ended=True,
    )
    with pytest.raises(FrameTooLongError, match="LogChunk"):
        encode(chunk)


def test_a_frame_of_exactly_the_limit_passes() -> None:
    """The bound itself is allowed."""
    overhead = len(encode(_chunk(MAX_FRAME_BYTES // 2))) - LENGTH_BYTES - MAX_FRAME_BYTES // 2
    frame = _chunk(MAX_FRAME_BYTES - overhead)
    data = encode(frame)
    assert len(data) == LENGTH_BYTES + MAX_FRAME_BYTES
    assert FrameDecoder(CONTROLLER_AGENT).feed(data) == [frame]


def test_an_unknown_type_of_frame_is_named_in_the_error() -> None:
    """A frame of a later version, sent although it was not agreed."""
    body = msgspec.msgpack.encode({"t": "teleport", "steps": []})
    with pytest.raises(MalformedFrameError, match="teleport"):
        FrameDecoder(CONTROLLER_AGENT).feed(len(body).to_bytes(4, "little") + body)


def test_an_unknown_field_is_ignored() -> None:
    """A newer peer may say more than this version understands."""
    body = msgspec.msgpack.encode({"t": "goodbye", "code": "denied", "mood": "cheerful"})
    assert FrameDecoder(CONTROLLER_AGENT).feed(len(body).to_bytes(4, "little") + body) == [Goodbye(code="denied")]


def test_a_deeply_nested_body_is_refused_without_harm() -> None:
    """100,000 arrays in each other must not exhaust the stack."""
    body = b"\x82\xa1t\xa7goodbye\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(MalformedFrameError):
        FrameDecoder(CONTROLLER_AGENT).feed(len(body).to_bytes(4, "little") + body)


def test_the_decoder_does_not_grow_with_the_stream() -> None:
    """After 20,000 frames in pieces of random size nothing is held back but a part of one frame."""
    rng = random.Random(1)
    stream = b"".join(encode(ExitsAck(steps=(StepId(1, n, 1, 0),))) for n in range(20_000))
    decoder, at, frames = FrameDecoder(CONTROLLER_AGENT), 0, 0
    while at < len(stream):
        size = rng.randint(1, 5_000)
        frames += len(decoder.feed(stream[at : at + size]))
        at += size
        assert decoder.pending_bytes < 100
    assert frames == 20_000


def test_the_keepers_part_of_the_wire_imports_no_asyncio() -> None:
    """Codec, frames, agreement and the socket functions: the keeper must stay small."""
    ask = "import sys, hal.wire.codec, hal.wire.agree, hal.runtime.sockets, hal.runtime.logfile; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", ask], env={**os.environ, "PYTHONPATH": "src"}).split()
    assert not {b"asyncio", b"uvloop", b"structlog", b"logging", b"dataclasses"} & set(loaded)


def refusal(decoder: FrameDecoder[Any], data: bytes) -> str:
    """The decoder's error, or '' when it took the bytes."""
    try:
        decoder.feed(data)
    except MalformedFrameError as error:
        return error.message
    return ""


def _chunk(size: int) -> LogChunk:
    return LogChunk(
        request=1, step=StepId(1, 0, 1, 0), stream=Stream.STDOUT, offset=0, data=bytes(size), size=0, ended=True
    )


@pytest.mark.parametrize(
    "frame",
    [
        {"t": "k" * 100_000},
        {"t": "hello", "role": "k" * 100_000},
        {"t": "goodbye", "reason": "k" * 100_000},
        {"t": "heartbeat", "stamp_boot_ms": "9" * 100_000},
    ],
)
def test_what_is_wrong_with_a_frame_does_not_repeat_it(frame: dict[str, Any]) -> None:
    """(H3) A tag of 8 MB came back whole in the goodbye, kept for each peer that did not read it."""
    body = msgspec.msgpack.encode(frame)
    with pytest.raises(MalformedFrameError) as caught:
        FrameDecoder(CONTROLLER_AGENT).feed(len(body).to_bytes(LENGTH_BYTES, "little") + body)
    assert len(encode(Goodbye(reason=caught.value.message))) < 1_000


def test_a_complaint_is_cut_at_300_characters() -> None:
    """A tag of a thousand is repeated in part."""
    body = msgspec.msgpack.encode({"t": "k" * 1_000})
    with pytest.raises(MalformedFrameError) as caught:
        FrameDecoder(CONTROLLER_AGENT).feed(len(body).to_bytes(LENGTH_BYTES, "little") + body)
    assert len(caught.value.message.partition("is not a known frame: ")[2]) == 300
