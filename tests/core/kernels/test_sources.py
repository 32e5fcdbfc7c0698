"""The hash that names compiled kernels covers every file that is compiled."""

from __future__ import annotations

from pathlib import Path

from hal.core.kernels import jit


def test_every_kernel_source_is_part_of_the_hash() -> None:
    """A file left out would let kernels of an older source be loaded."""
    files = {path.stem for path in Path(jit.__file__).parent.glob("*.py")}
    assert set(jit.SOURCES) == files - {"__init__", "compile_all"}
