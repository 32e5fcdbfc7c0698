"""Compile the engine's numba kernels into their cache and say so: seconds the first time, nothing afterwards.

The cache directory is named by a hash of the kernels' sources and of numba's version, so a stamp beside it is enough.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> int:
    cache = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(sys.prefix) / "hal-cache")
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    began_s = time.monotonic()
    print("Kernels: checking the engine's compiled kernels ...", flush=True)

    from hal.core.kernels.compile_all import compile_all

    from hal.core.kernels.jit import kernel_source_hash

    stamp = cache / f"compiled-{kernel_source_hash()}-py{sys.version_info.major}.{sys.version_info.minor}"
    if stamp.exists():
        print(f"Kernels: compiled before ({cache.name})", flush=True)
        return 0
    print("Kernels: compiling them with numba; this takes up to a minute and happens once per version", flush=True)
    compile_all(report=lambda line: print(f"  {line}", flush=True))
    cache.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    print(f"Kernels: ready after {time.monotonic() - began_s:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
