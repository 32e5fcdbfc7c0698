"""Which device files a step may use that is kept from the others: the harmless ones, and GPUs if it asked for any."""

from __future__ import annotations

import glob
import os
import stat

GPUS = ("/dev/nvidia*", "/dev/nvidia*/*", "/dev/dri/*", "/dev/kfd", "/dev/accel/*")
"""Where drivers of GPUs and other accelerators put theirs."""
OF_ONE_GPU = ("/dev/nvidia", "/dev/nvidia-caps/nvidia-cap", "/dev/dri/card", "/dev/dri/renderD", "/dev/accel/accel")
"""How those begin that are a single GPU's, or a slice's of it, and end with a number."""
MAX_FILES = 200
"""Device files that patterns can name; the rest is not used."""


def device_files(patterns: tuple[str, ...]) -> list[str]:
    """Return the paths of the device files that exist now and match, sorted."""
    paths = sorted({path for pattern in patterns for path in glob.glob(pattern)})
    return [path for path in paths if _is_device(path)][:MAX_FILES]


def gpu_files(own: tuple[str, ...]) -> list[str]:
    """Return the device files of GPUs that exist now.

    Args:
        own: those that belong to the GPUs of the step; of others only what all GPUs share is returned. (): all.
    """
    if not own:
        return device_files(GPUS)
    found = device_files((*GPUS, *own))
    return [path for path in found if path in own or not _is_of_one(path)]


def _is_of_one(path: str) -> bool:
    return path[-1:].isdigit() and path.rstrip("0123456789") in OF_ONE_GPU


def _is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:  # gone, or a dangling link
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
