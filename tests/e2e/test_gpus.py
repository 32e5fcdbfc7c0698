"""GPUs of steps as people see them, on a real HAL whose hal.toml declares some: in programs, in `hal show`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import LiveHal, new_home, until

pytestmark = pytest.mark.slow

GPUS = "".join(
    f'[[node.gpus]]\nmodel = "NVIDIA A100"\nuuid = "GPU-{name}"\nisland = "{name[0]}"\n'
    for name in ("a0", "a1", "b0", "b1")
)
ASK = 'echo "$HAL_DEVICES" "$CUDA_VISIBLE_DEVICES" "$CUDA_DEVICE_ORDER"'


@pytest.fixture
def live() -> Iterator[LiveHal]:
    """A HAL of two nodes on a machine with two islands of two GPUs."""
    found = LiveHal(new_home())
    found.root.mkdir(exist_ok=True)
    (found.root / "hal.toml").write_text(GPUS)
    try:
        found.up("--nodes", "2", "--cpus", "4")
        yield found
    finally:
        found.remove()


def test_jobs_see_gpus_of_their_own_and_a_new_controller_knows_them(live: LiveHal) -> None:
    """Each node has one island. One GPU of n1 is held while the controller ends and another one begins."""
    with live.client() as client:
        holder = client.submit(["sleep", "1000"], cpus=1, gpus=1, constraints="hal.node=n1")
        until(lambda: "GPUs GPU-a0 of n1" in live.run("show", holder.id).out, "hal show does not say which GPU it has")
    live.run("down", "--leave", check=True)
    live.up()
    with live.client() as client:
        job = client.submit(["sh", "-c", ASK], cpus=1, gpus=1, constraints="hal.node=n1")
        job.wait(check=True)
        assert live.run("logs", job.id).out == "1 1 PCI_BUS_ID\n"
        both = client.submit(["sh", "-c", ASK], cpus=1, gpus=2, constraints="hal.node=n2")
        both.wait(check=True)
        assert live.run("logs", both.id).out == "2,3 2,3 PCI_BUS_ID\n"
        none = client.submit(["sh", "-c", ASK], cpus=1)
        none.wait(check=True)
        assert live.run("logs", none.id).out == "  \n"


@pytest.fixture
def sharing() -> Iterator[LiveHal]:
    """A HAL of one node with four GPUs, which jobs may share."""
    found = LiveHal(new_home())
    found.root.mkdir(exist_ok=True)
    (found.root / "hal.toml").write_text(f"[engine]\ngpu_parts = true\n{GPUS}")
    try:
        found.up("--name", "n1", "--cpus", "8")
        yield found
    finally:
        found.remove()


def test_two_halves_see_one_gpu_and_a_whole_one_is_another(sharing: LiveHal) -> None:
    """Three of the four are whole; the fourth whole one waits, and `hal why` says for what."""
    ask = 'echo "$HAL_DEVICES" "$HAL_GPU_SHARE"; sleep 1000'
    with sharing.client() as client:
        jobs = [client.submit(["sh", "-c", ask], cpus=1, gpus=0.5) for _ in range(2)]
        whole = client.submit(["sh", "-c", ask], cpus=1, gpus=3)
        seen = ["0 0.5\n", "0 0.5\n", "1,2,3 \n"]
        for job, line in zip((*jobs, whole), seen, strict=True):
            until(lambda job=job, line=line: sharing.run("logs", job.id).out == line, f"job {job.id} is not on {line}")
        client.cancel(jobs[0].id)
        last = client.submit(["sh", "-c", ask], cpus=1, gpus=1)
        until(lambda: "gpu" in sharing.run("why", last.id).out, "hal why does not say that it waits for a GPU")
        client.cancel(jobs[1].id)
        until(lambda: sharing.run("logs", last.id).out == "0 \n", "the GPU whose halves were given back is not whole")


DIVIDED = """[engine]
gpu_islands = true
[[node.gpus]]
island = "a"
[[node.gpus]]
[[node.gpus]]
island = "a"
[[node.gpus]]
slices = [
    { type = "1g.10gb", uuid = "MIG-1" }, { type = "1g.10gb", uuid = "MIG-2" }, { type = "2g.20gb", uuid = "MIG-3" },
]
"""


@pytest.fixture
def divided() -> Iterator[LiveHal]:
    """A HAL of one node with three GPUs, two of which are linked, and one in MIG mode."""
    found = LiveHal(new_home())
    found.root.mkdir(exist_ok=True)
    (found.root / "hal.toml").write_text(DIVIDED)
    try:
        found.up("--name", "n1", "--cpus", "8")
        yield found
    finally:
        found.remove()


def test_slices_and_islands_are_given_as_the_page_says(divided: LiveHal) -> None:
    """The island is the first and third GPU. Two small slices are two of one GPU; a third one waits for them."""
    ask = f"{ASK}; sleep 1000"
    assert divided.run("submit", "--gpus", "3@island", "--", "true").code == 2
    island = divided.run("submit", "--quiet", "--gpus", "2@island", "--", "sh", "-c", ask, check=True).out.strip()
    until(lambda: divided.run("logs", island).out == "0,2 0,2 PCI_BUS_ID\n", "the island is not the linked GPUs")
    small = divided.run("submit", "--quiet", "--gpus", "1g.10gb:2", "--", "sh", "-c", ask, check=True).out.strip()
    seen = "MIG-1,MIG-2 MIG-1,MIG-2 PCI_BUS_ID\n"
    until(lambda: divided.run("logs", small).out == seen, "the step does not see its slices")
    assert "GPUs MIG-1, MIG-2 of n1" in divided.run("show", small).out
    late = divided.run("submit", "--quiet", "--gpus", "1g.10gb:1", "--", "sh", "-c", ask, check=True).out.strip()
    until(lambda: "mig-1g.10gb" in divided.run("why", late).out, "hal why does not say that it waits for a slice")
    divided.run("down", "--leave", check=True)
    divided.up()
    assert "mig-1g.10gb" in divided.run("why", late).out
    divided.run("cancel", small, check=True)
    until(
        lambda: divided.run("logs", late).out == "MIG-1 MIG-1 PCI_BUS_ID\n", "a slice that was given back is not given"
    )
