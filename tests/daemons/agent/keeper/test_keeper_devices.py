"""Devices of steps: which ones rules name, the program for version 2 of cgroups, and what real cgroups let through."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper.device_program import EXIT, JUMP_UNLESS, LOAD, SET, assemble
from hal.daemons.agent.keeper.devices import STANDARD, DeviceRule, StepDevices
from hal.daemons.agent.keeper.helper_process import device_files, sandbox
from hal.daemons.agent.keeper.limits import Cgroups, cgroup_name
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from hal.wire.frames.agent_keeper import Refused, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper

UNIFIED = Path("/sys/fs/cgroup/unified")
"""Where version 2 is mounted beside version 1."""
ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
RULES = (DeviceRule("b", 8, 1), DeviceRule("c", 1, 3), DeviceRule("c", 136, -1))


def answer(program: bytes, kind: int, major: int, minor: int) -> int:
    """What a program for devices answers for one that is read: it uses five kinds of instructions."""
    registers, context, at = [0] * 5, {0: 2 << 16 | kind, 4: major, 8: minor}, 0
    while True:
        operation, both, offset, value = struct.unpack_from("=BBhi", program, 8 * at)
        to, at = both & 0xF, at + 1
        if operation == EXIT:
            return registers[0]
        if operation == JUMP_UNLESS:
            at += offset if registers[to] != value else 0
        elif operation == LOAD:
            registers[to] = context[offset]
        else:
            registers[to] = value if operation == SET else registers[to] & value


@pytest.mark.parametrize(
    ("device", "allowed"),
    [
        ((1, 8, 1), 1),
        ((2, 8, 1), 0),
        ((1, 8, 2), 0),
        ((2, 1, 3), 1),
        ((2, 1, 4), 0),
        ((1, 1, 3), 0),
        ((2, 136, 0), 1),
        ((2, 136, 77), 1),
        ((2, 137, 77), 0),
        ((2, 0, 0), 0),
    ],
)
def test_the_program_allows_what_its_rules_name_and_nothing_else(device: tuple[int, int, int], allowed: int) -> None:
    """Kinds as the kernel counts them: 1 is a block device, 2 a character device."""
    assert answer(assemble(RULES), *device) == allowed


def test_without_a_setting_nothing_is_restricted() -> None:
    assert (StepDevices(("all",)).restricted, StepDevices(("all",)).rules(gpus=True)) == (False, ())


def test_standard_devices_are_those_that_harm_nobody() -> None:
    """null, zero, full, random, urandom; tty, console, ptmx; pseudo-terminals."""
    shown = [str(rule) for rule in StepDevices(("standard",)).rules(gpus=False)]
    assert shown[:8] == [*(f"c 1:{minor} rwm" for minor in (3, 5, 7, 8, 9)), *(f"c 5:{n} rwm" for n in range(3))]
    assert shown[8:] == [f"c {major}:* rwm" for major in range(136, 144)]


def test_a_pattern_of_the_site_adds_the_devices_that_match_it_now() -> None:
    """Here one that every machine has; what is no device file adds nothing."""
    mode = os.stat("/dev/tty")
    assert stat.S_ISCHR(mode.st_mode)
    added = set(StepDevices(("standard", "/dev/kms?", "/dev/pts", "/dev/none*")).rules(gpus=False)) - set(STANDARD)
    assert added == {DeviceRule("c", 1, 11)}


@pytest.fixture(params=["1", "2"])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Cgroups]:
    """Of each version, where this machine has it and lets us."""
    name = f"hal-test-devices-{os.getpid()}"
    if request.param == "2" and UNIFIED.is_dir():
        made = Cgroups(name, devices=True, root=UNIFIED, own="0::/\n")
    else:
        made = Cgroups(name, devices=True)
    reasons = [note for note in made.notes if "device" in note]
    if reasons or made.version != int(request.param):
        made.close()
        pytest.skip(reasons[0] if reasons else f"no cgroups of version {request.param} here")
    yield made
    made.close()


def tried(place: Path, *paths: str) -> list[str]:
    """Which of these files a process in that cgroup can open."""
    script = f"echo $$ >{place}/cgroup.procs; for f; do (: <$f) 2>/dev/null && echo $f; done; :"
    return subprocess.run(
        ["sh", "-c", script, "sh", *paths], check=True, capture_output=True, text=True, timeout=30
    ).stdout.split()


@pytest.fixture
def kernel_log(tmp_path: Path) -> str:
    """A device file by another name, which root may make anywhere."""
    path = tmp_path / "harmless"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 11))
    except PermissionError:
        pytest.skip("device files cannot be made here")
    return str(path)


def test_a_cgroup_opens_its_devices_only_by_whatever_name(cgroups: Cgroups, kernel_log: str) -> None:
    slot = cgroups.acquire(0, 0, STANDARD)
    assert slot is not None
    place = slot.directories["devices"]
    assert tried(place, "/dev/null", kernel_log, "/dev/urandom") == ["/dev/null", "/dev/urandom"]
    assert tried(place.parent, kernel_log) == [kernel_log]


def test_a_slot_is_used_again_for_the_same_devices_only(cgroups: Cgroups) -> None:
    slot = cgroups.acquire(0, 0, STANDARD)
    assert slot is not None
    cgroups.release(slot)
    other = cgroups.acquire(0, 0, (*STANDARD, DeviceRule("c", 1, 11)))
    assert other is not slot
    assert cgroups.acquire(0, 0, STANDARD) is slot


def test_a_slot_whose_devices_were_changed_is_not_used_again(cgroups: Cgroups) -> None:
    slot = cgroups.acquire(0, 0, STANDARD)
    assert slot is not None
    place = slot.directories["devices"]
    if cgroups.version == 1:
        (place / "devices.allow").write_text("a")
    else:
        cgroups._programs.attach((*STANDARD, DeviceRule("c", 1, 11)), place)
    cgroups.release(slot)
    assert cgroups.acquire(0, 0, STANDARD) is not slot


@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
@pytest.mark.parametrize(("gpus", "seen"), [(False, ["null"]), (True, ["kmsg", "null"])])
def test_in_a_sandbox_dev_has_gpus_only_for_who_asked(
    gpus: bool, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands for a GPU is a device file that every machine has."""
    monkeypatch.setattr(device_files, "GPUS", ("/dev/kms?",))
    command = sandbox.sandboxed(("own-dev",), "/bin/ls", ["ls", "/dev"], {}, here="/", gpus=gpus)
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.split()
    assert [name for name in listed if name in ("kmsg", "null")] == seen
    assert {"shm", "pts", "urandom"} < set(listed)


@pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
@pytest.mark.parametrize(
    ("words", "writes"), [(("read-only",), False), (("own-dev", "read-only"), False), (("own-dev",), True)]
)
def test_what_only_reads_writes_no_shared_memory(words: tuple[str, ...], writes: bool) -> None:
    left = Path(f"/dev/shm/hal-test-{os.getpid()}")
    command = sandbox.sandboxed(words, "/bin/sh", ["sh", "-c", f": >{left}"], {}, here="/")
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=30)
        assert left.exists() is writes
    finally:
        left.unlink(missing_ok=True)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hal.toml").write_text('[node]\ndevices = ["standard"]\n')
    with Keeper(tmp_path / "home") as keeper:
        assert keeper.welcome is not None
        if any("device limits are not enforced" in note for note in keeper.welcome.notes):
            pytest.skip("devices are not restricted here")
        yield keeper


def test_a_step_of_such_a_node_opens_no_other_device(keeper: Keeper, kernel_log: str) -> None:
    """Nor does the next one, in the same cgroup; the limits of memory and processes hold beside it."""
    script = f"(: <{kernel_log}) 2>/dev/null && echo open; (: </dev/null) && echo null"
    for step in (ONE, TWO):
        keeper.run(StepTemplate(command=("sh", "-c", script), memory_bytes=64 << 20), step)
        assert keeper.log(step).data == b"null\n"


def test_a_step_from_which_devices_cannot_be_kept_is_refused(keeper: Keeper) -> None:
    """It would run with a note if a limit of memory could not be set; devices are a matter of rights. Here what all
    slots are in has no /dev/null itself, so the kernel lets none have it."""
    name = cgroup_name(str(keeper.home.root), keeper.node)
    above = next(UNIFIED.parent.glob(f"devices/**/{name}/devices.deny"), None)
    if above is None:
        pytest.skip("cgroups of version 2 have no such order between them")
    above.write_text("c 1:3 rwm")
    keeper.launch(StepTemplate(command=("true",)), ONE)
    refusal = keeper.until_frame(Refused).steps[0]
    assert (refusal.step, "its cgroup could not be made" in refusal.message) == (ONE, True)
