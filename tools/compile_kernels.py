"""Compile the engine's numba kernels into their cache and say so: most of a minute the first time, nothing afterwards.

The cache directory is named by a hash of the kernels' sources and of numba's version, so a stamp in it is enough.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> int:
    os.environ["NUMBA_CACHE_DIR"] = os.environ.get("HAL_CACHE") or str(Path(sys.prefix) / "hal-cache")
    began_s = time.monotonic()

    from hal.core.kernels.compile_all import compile_all
    from numba import config

    cache = Path(config.CACHE_DIR)
    stamp = cache / f"all-of-python-{sys.version_info.major}.{sys.version_info.minor}"
    if stamp.exists():
        return 0
    print("Kernels: compiling the engine with numba (about a minute, once per version of its source) ...", flush=True)
    compile_all(report=lambda line: print(f"  {line}", flush=True))
    cache.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    print(f"Kernels: ready after {time.monotonic() - began_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
