"""Variables that name a step's GPUs."""

from __future__ import annotations

import pytest

from hal.daemons.agent.device_env import device_env
from hal.daemons.agent.keeper.devices import near_cpus, own_files
from hal.daemons.agent.keeper.helper_process import device_files as module
from hal.daemons.agent.keeper.helper_process.device_files import gpu_files
from hal.wire.frames.agent_keeper import StepDevice

H200 = [StepDevice(index, f"GPU-{index}", 1_000, "nvidia", (f"/dev/nvidia{index}",), 80 << 30) for index in range(4)]


def test_nvidia_gpus_are_named_by_index_in_the_order_of_the_node() -> None:
    """CUDA's own order is by speed."""
    assert device_env((H200[1], H200[3])) == {
        "HAL_DEVICES": "1,3",
        "HAL_DEVICE_UUIDS": "GPU-1,GPU-3",
        "HAL_DEVICE_FILES": "/dev/nvidia1,/dev/nvidia3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1,3",
    }


def test_cuda_counts_from_zero_where_the_others_cannot_be_opened() -> None:
    """It numbers the GPUs that it can open."""
    assert device_env((H200[1], H200[3]), hidden=True)["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_amd_gpus_are_named_for_both_runtimes() -> None:
    """HIP counts those that ROCr leaves."""
    env = device_env((StepDevice(2, "GPU-00ab", 1_000, "amd"), StepDevice(3, "", 1_000, "amd")))
    assert (env["ROCR_VISIBLE_DEVICES"], env["HIP_VISIBLE_DEVICES"]) == ("GPU-00ab,3", "0,1")
    assert "CUDA_VISIBLE_DEVICES" not in env


def test_a_part_of_a_gpu_says_how_much() -> None:
    """NVIDIA's MPS, where it runs, lets it have no more: half of 80 GiB is 40,960 MiB."""
    env = device_env((StepDevice(0, "GPU-0", 500, "nvidia", (), 80 << 30),))
    assert env["HAL_GPU_SHARE"] == "0.5"
    assert (env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]) == ("50", "0=40960M")


def test_a_gpu_that_its_node_no_longer_reports_is_named_by_its_uuid() -> None:
    """CUDA then finds none, which is better than another step's."""
    assert device_env((StepDevice(-1, "GPU-9", 1_000, "nvidia"),))["CUDA_VISIBLE_DEVICES"] == "GPU-9"


def test_slices_are_named_by_their_uuids() -> None:
    """Also where the others cannot be opened, and beside whole GPUs: CUDA takes no mixture."""
    small, large = (StepDevice(2, f"MIG-{name}", 1_000, "nvidia") for name in "ab")
    env = device_env((small, large))
    assert (env["CUDA_VISIBLE_DEVICES"], env["HAL_DEVICES"]) == ("MIG-a,MIG-b", "MIG-a,MIG-b")
    assert device_env((small,), hidden=True)["CUDA_VISIBLE_DEVICES"] == "MIG-a"
    assert device_env((H200[1], small))["CUDA_VISIBLE_DEVICES"] == "GPU-1,MIG-a"


def test_the_files_of_other_slices_are_not_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has two below nvidia-caps, beside that of its GPU."""
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (1, 21, 22, 30)]
    there = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", *caps]
    monkeypatch.setattr(module, "device_files", lambda patterns: there)
    assert gpu_files(("/dev/nvidia0", caps[1], caps[2])) == ["/dev/nvidia0", "/dev/nvidiactl", caps[1], caps[2]]


def test_a_step_may_open_what_is_its_own() -> None:
    """If the files of one are not known, those of all."""
    assert own_files((H200[0], H200[2])) == ("/dev/nvidia0", "/dev/nvidia2")
    assert own_files((H200[0], StepDevice(1))) == ()
    assert "/dev/null" in gpu_files(("/dev/null",))


def test_cpus_near_its_gpus_are_those_of_all_of_them() -> None:
    """What is no list is nothing."""
    assert near_cpus((StepDevice(0, cpus="0-1"), StepDevice(1, cpus="4"), StepDevice(2, cpus="odd"))) == 0b10011
