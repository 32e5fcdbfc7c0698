"""spec/frames.md: it describes every frame, and its examples are what the codec reads and writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from hal.wire.codec import FrameDecoder, encode
from hal.wire.document import document
from hal.wire.examples import EXAMPLES
from hal.wire.frames import AnyFrame

DOCUMENT = Path(__file__).parents[2] / "spec" / "frames.md"
SECTION = re.compile(r"^#### `(.+?)`\n(.*?)(?=^#{2,4} )", re.MULTILINE | re.DOTALL)
HEX = re.compile(r"```hex\n(.*?)```", re.DOTALL)
JSON = re.compile(r"```json\n(.*?)```", re.DOTALL)
TAGS = [str(kind.__struct_config__.tag) for kind in get_args(AnyFrame)]


def sections() -> dict[str, str]:
    """What the document says about each frame, by type."""
    return dict(SECTION.findall(DOCUMENT.read_text()))


def test_the_document_is_what_the_frames_declare() -> None:
    """Changed frames without a changed document fail here; `make spec` writes it anew."""
    assert DOCUMENT.read_text() == document()


def test_every_frame_has_an_example_in_the_order_of_declaration() -> None:
    """A new frame needs one."""
    assert [type(example) for example in EXAMPLES] == list(get_args(AnyFrame))


@pytest.mark.parametrize("tag", TAGS)
def test_the_examples_bytes_and_json_are_the_same_frame(tag: str) -> None:
    """Read as a client in another language would: from the text of the document alone."""
    text = sections()[tag]
    data = bytes.fromhex(HEX.findall(text)[0])
    (frame,) = FrameDecoder().feed(data)
    assert msgspec.json.decode(JSON.findall(text)[0], type=AnyFrame) == frame
    assert frame.__struct_config__.tag == tag
    assert encode(frame) == data


@pytest.mark.parametrize("tag", TAGS)
def test_every_field_is_listed_with_its_default(tag: str) -> None:
    """Each field of the frame has a row in its table."""
    (kind,) = [kind for kind in get_args(AnyFrame) if kind.__struct_config__.tag == tag]
    rows = re.findall(r"^\| `(\w+)` \|", sections()[tag], re.MULTILINE)
    assert rows == list(kind.__struct_fields__)
