"""spec/frames.md: it describes every frame, and its examples are what the codec reads and writes."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from functools import reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest

from hal.wire import frames
from hal.wire.codec import FrameDecoder, encode
from hal.wire.document import CONVERSATIONS, FRAMES, document
from hal.wire.errors import MalformedFrameError
from hal.wire.examples import EXAMPLES
from hal.wire.frames.conversation import Conversation

DOCUMENT = Path(__file__).parents[2] / "spec" / "frames.md"
SECTION = re.compile(r"^#### `(.+?)`\n(.*?)(?=^#{2,4} )", re.MULTILINE | re.DOTALL)
HEX = re.compile(r"```hex\n(.*?)```", re.DOTALL)
JSON = re.compile(r"```json\n(.*?)```", re.DOTALL)
TAGS = [str(kind.__struct_config__.tag) for kind in FRAMES]
CONVERSATION_OF = {kind.__struct_config__.tag: one for one in reversed(CONVERSATIONS) for kind in one.kinds}
"""A conversation that has the frame, by its tag."""
ANY: Any = reduce(or_, FRAMES)


def sections() -> dict[str, str]:
    """What the document says about each frame, by type."""
    return dict(SECTION.findall(DOCUMENT.read_text()))


def test_the_document_is_what_the_frames_declare() -> None:
    """Changed frames without a changed document fail here; `make spec` writes it anew."""
    assert DOCUMENT.read_text() == document()


def test_every_frame_of_a_conversation_has_one_example() -> None:
    """A new frame needs one."""
    assert sorted(FRAMES, key=str) == sorted({kind for one in CONVERSATIONS for kind in one.kinds}, key=str)


def test_every_conversation_is_described() -> None:
    """A new module of frames is listed with the others."""
    modules = [import_module(f"{frames.__name__}.{one.name}") for one in iter_modules(frames.__path__)]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Conversation)}
    assert found == set(CONVERSATIONS)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.name)
def test_a_frame_of_another_conversation_is_malformed(conversation: Conversation[Any]) -> None:
    """A connection accepts exactly the frames of its own conversation."""
    accepted = []
    for example in EXAMPLES:
        with suppress(MalformedFrameError):
            accepted += FrameDecoder(conversation).feed(encode(example))
    assert [type(frame) for frame in accepted] == [kind for kind in FRAMES if kind in conversation.kinds]


def test_a_keeper_loads_no_frames_but_its_own() -> None:
    """Its memory does not grow with the conversations of others."""
    code = "import sys, hal.daemons.agent.keeper.loop; print(*sorted(m for m in sys.modules if 'wire.frames.' in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == [f"hal.wire.frames.{name}" for name in ("agent_keeper", "conversation", "hello")]


@pytest.mark.parametrize("tag", TAGS)
def test_the_examples_bytes_and_json_are_the_same_frame(tag: str) -> None:
    """Read as a client in another language would: from the text of the document alone."""
    text = sections()[tag]
    data = bytes.fromhex(HEX.findall(text)[0])
    (frame,) = FrameDecoder(CONVERSATION_OF[tag]).feed(data)
    assert msgspec.json.decode(JSON.findall(text)[0], type=ANY) == frame
    assert frame.__struct_config__.tag == tag
    assert encode(frame) == data


@pytest.mark.parametrize("tag", TAGS)
def test_every_field_is_listed_with_its_default(tag: str) -> None:
    """Each field of the frame has a row in its table."""
    (kind,) = [kind for kind in FRAMES if kind.__struct_config__.tag == tag]
    rows = re.findall(r"^\| `(\w+)` \|", sections()[tag], re.MULTILINE)
    assert rows == list(kind.__struct_fields__)
