"""The example of docs/blobs.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.runtime.interface import Runtime
from tests.runtime.real_runtime import run_real

PAGE = Path(__file__).parents[2] / "docs" / "blobs.md"


def test_the_example_stores_and_reads_a_long_blob(tmp_path: Path) -> None:
    """Pieces in, the same bytes out."""
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    pieces, consumed = [bytes([number]) * CHUNK_BYTES for number in range(3)], []

    async def main(runtime: Runtime) -> None:
        exec(example, {"runtime": runtime, "pieces": pieces, "consume": consumed.append})

    run_real(tmp_path, main)
    assert b"".join(consumed) == b"".join(pieces)
