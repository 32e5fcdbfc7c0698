"""Compile the engine's numba kernels into their cache and say so: a minute or two the first time, then nothing.

The cache directory is named by a hash of the kernels' sources and of numba's version, so a stamp in it is enough. Two
processes share the work, one for each half of the kernels. Kernels of old versions are taken away afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    from hal.runtime.kernel_cache import check_cache

    os.environ["NUMBA_CACHE_DIR"] = os.environ.get("HAL_CACHE") or str(Path(sys.prefix) / "hal-cache")
    check_cache(Path(os.environ["NUMBA_CACHE_DIR"]))
    if len(sys.argv) == 2:
        return compile_share(int(sys.argv[1]))
    began_s = time.monotonic()

    from hal.core.kernels.compile_all import SHARES
    from hal.core.kernels.structures.jit import stamp_of_all
    from hal.runtime.kernel_cache import mark_used, remove_old_versions

    stamp = stamp_of_all()
    if stamp.exists():
        mark_used(stamp)
        return 0
    print("Kernels: compiling the engine with numba (a minute or two, once per version of it) ...", flush=True)
    shares = [subprocess.Popen([sys.executable, __file__, str(share)]) for share in range(len(SHARES))]
    codes = [share.wait() for share in shares]
    if any(codes):
        print("Kernels: compiling failed, see above", file=sys.stderr)
        return 1
    stamp.touch()
    remove_old_versions(stamp)
    print(f"Kernels: ready after {time.monotonic() - began_s:.0f} s", flush=True)
    return 0


def compile_share(share: int) -> int:
    from hal.core.kernels.compile_all import compile_all

    compile_all(report=lambda line: print(f"  {line}", flush=True), share=share)
    return 0


if __name__ == "__main__":
    sys.exit(main())
