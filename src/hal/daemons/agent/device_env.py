"""The variables that say to a step, and to the scripts of its node, which GPUs are its own.

Pure. Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; AMD's "GPU isolation techniques"; NVIDIA's
"Multi-Process Service".
"""

from __future__ import annotations

from typing import Final

from hal.wire.frames.agent_keeper import StepDevice

WHOLE: Final = 1_000
NVIDIA: Final = "nvidia"
AMD: Final = "amd"
SLICES: Final = "MIG-"
"""How the uuids of slices begin."""


def device_env(devices: tuple[StepDevice, ...], *, hidden: bool = False) -> dict[str, str]:
    """Build the variables of a step with GPUs of its own.

    Args:
        hidden: the step cannot open the others, so that CUDA does not count them.
    """
    env = {"HAL_DEVICES": ",".join(map(_named, devices))}
    if all(device.uuid for device in devices):
        env["HAL_DEVICE_UUIDS"] = ",".join(device.uuid for device in devices)
    if files := [file for device in devices for file in device.files]:
        env["HAL_DEVICE_FILES"] = ",".join(files)
    own = [device for device in devices if device.vendor == NVIDIA]
    if own:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the node counts them; CUDA's own order is by speed
        env["CUDA_VISIBLE_DEVICES"] = _cuda_devices(own, hidden=hidden)
    amds = [device for device in devices if device.vendor == AMD]
    if amds:
        env["ROCR_VISIBLE_DEVICES"] = ",".join(device.uuid or str(device.index) for device in amds)
        env["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(amds))))  # of those that ROCr leaves
    parts = [device for device in devices if device.milli < WHOLE]
    if parts:
        env["HAL_GPU_SHARE"] = f"{parts[-1].milli / WHOLE:g}"
        if parts[-1].vendor == NVIDIA and len(devices) == 1:
            env.update(_share_env(parts[-1]))
    return env


def _cuda_devices(own: list[StepDevice], *, hidden: bool) -> str:
    """Name them as CUDA does: it knows slices by their uuids, and does not take these beside indexes."""
    if any(map(_is_slice, own)):
        return ",".join(device.uuid or str(device.index) for device in own)
    return ",".join(map(str, range(len(own)))) if hidden else ",".join(map(_named, own))


def _is_slice(device: StepDevice) -> bool:
    return device.uuid.startswith(SLICES)


def _named(device: StepDevice) -> str:
    return str(device.index) if device.index >= 0 and not _is_slice(device) else device.uuid


def _share_env(device: StepDevice) -> dict[str, str]:
    """What NVIDIA's MPS, where it runs, lets a client have of the one GPU that it sees."""
    env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{device.milli / 10:g}"}
    if device.memory_bytes:
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={device.memory_bytes * device.milli // WHOLE >> 20}M"
    return env
