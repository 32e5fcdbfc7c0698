"""What one copy of the kernels has compiled serves another copy of the same sources, in a clone or environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hal
from hal.core.kernels.structures.jit import kernel_source_hash

CALL = """
import numpy as np
from hal.core.kernels.structures import slots
slots.rehash(np.zeros(8, np.int64), np.zeros((2, 2), np.int64), np.zeros(0, np.int64), 0, False)
print(slots.__file__, sum(slots.rehash.stats.cache_hits.values()), sum(slots.rehash.stats.cache_misses.values()))
"""


def compiled(source: Path, cache: Path) -> list[str]:
    """Call a kernel of these sources: where it stands, how often it was found compiled, and was not."""
    env = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", CALL], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_another_copy_compiles_nothing_again(tmp_path: Path) -> None:
    """The files are younger, and lie elsewhere."""
    here, cache, copy = Path(hal.__file__).parents[1], tmp_path / "cache", tmp_path / "copy"
    shutil.copytree(here / "hal" / "core", copy / "hal" / "core", copy_function=shutil.copyfile)
    shutil.copyfile(here / "hal" / "__init__.py", copy / "hal" / "__init__.py")
    file, hits, misses = compiled(here, cache)
    assert (Path(file).is_relative_to(here), hits, misses) == (True, "0", "1")
    file, hits, misses = compiled(copy, cache)
    assert (Path(file).is_relative_to(copy), hits, misses) == (True, "1", "0")
    assert [path.name for path in cache.iterdir()] == [f"kernels-{kernel_source_hash()}"]
