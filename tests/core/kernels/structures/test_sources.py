"""The hash that names compiled kernels covers every file that is compiled."""

from __future__ import annotations

from pathlib import Path

from hal.core.kernels.structures import jit


def test_every_kernel_source_is_part_of_the_hash() -> None:
    """A file left out would let kernels of an older source be loaded."""
    kernels = Path(jit.__file__).parent.parent
    files = {path.relative_to(kernels).with_suffix("").as_posix() for path in kernels.rglob("*.py")}
    assert set(jit.SOURCES) == {name for name in files if not name.endswith("__init__")} - {"compile_all"}
