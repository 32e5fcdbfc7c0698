"""What docs/install.md shows is run as it stands there, on two machines with nothing on them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import DEADLINE_S, Host, Network
from tests.wheels import INSTALL, ROOT, build_wheel, empty_environment

PAGE = ROOT / "docs" / "install.md"
SCRIPT = ROOT / "examples" / "cluster" / "install-hal.sh"


class Machine:
    """A host with directories of its own where the page names those of the system.

    What differs from the page: the places (`PREFIX`, `BIN`, `BACKUPS`, `HAL_HOME`), pip, which takes nothing from
    elsewhere, systemctl, which is the one of these tests, and kernels, which are compiled already (a first start before
    they are: `tests/e2e/test_first_start.py`).
    """

    def __init__(self, host: Host, shared: Path) -> None:
        self.host = host
        self.shared = shared
        self.own = host.root / "system"
        for name in ("bin", "units", "services", "backups"):
            (self.own / name).mkdir(parents=True)
        systemctl = self.own / "bin" / "systemctl"
        stand_in = Path(__file__).with_name("systemctl.py")
        systemctl.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} {self.own / "services"} "$@"\n')
        systemctl.chmod(0o755)
        empty_environment(self.own / "opt", pip=True)

    def run(self, block: str) -> str:
        """Run a block of the page; what it printed."""
        script = block.replace("/var/backups/hal", str(self.own / "backups"))
        settings = {
            "PREFIX": self.own / "opt",
            "BIN": self.own / "bin",
            "BACKUPS": self.own / "backups",
            "PIP_OPTIONS": " ".join(INSTALL),
            "PATH": f"{self.own / 'bin'}:{self.host.environment['PATH']}",
        }
        exports = "\n".join(f"export {name}='{value}'" for name, value in settings.items())
        own_units = f"mount --bind {self.own / 'units'} /etc/systemd/system"
        # The directory of this checkout is not that of what is installed.
        clean = "unset NUMBA_CACHE_DIR PYTHONPATH"
        process = self.host.start("bash", "-c", f"{own_units}\n{clean}\n{exports}\ncd {self.shared}\n{script}")
        out, err = process.communicate(timeout=3 * DEADLINE_S)
        assert process.returncode == 0, f"{block}\n{out}\n{err}"
        return out


def page() -> list[tuple[str, str]]:
    """The blocks that the page runs: where, and what."""
    found = re.findall(r"^```sh\n(set -e  # on (.*?)\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [(where, block) for block, where in found]


@pytest.mark.skipif(not Path("/etc/systemd/system").is_dir(), reason="there is no directory of systemd's units")
@pytest.mark.long
def test_a_cluster_is_installed_used_upgraded_and_removed_as_the_page_says(tmp_path: Path) -> None:
    """From the wheel to the removal; a job that runs while both machines are upgraded ends well."""
    shutil.copy(SCRIPT, tmp_path)
    shutil.copy(build_wheel(tmp_path), tmp_path)
    blocks = page()
    (before_upgrade,) = (at for at, (_, block) in enumerate(blocks) if "ls /var/backups" in block)
    with Network() as network:
        machines = {name: Machine(network.host(name), tmp_path) for name in ("head", "node")}
        printed = [machines[where].run(block) for where, block in blocks[: before_upgrade + 1]]
        assert re.search(r"^node +up ", printed[-2], re.MULTILINE)
        assert {line.split()[-1] for line in printed[-2].splitlines()[-2:]} == {"head", "node"}
        assert re.search(r"hal-\d{8}T\d{6}Z\.sqlite", printed[-1])
        head = machines["head"]
        gate = tmp_path / "gate"
        job = head.run(
            f"hal submit --nodes 2 --workdir /tmp -- sh -c 'until [ -e {gate} ]; do sleep 0.1; done; echo over'"
        ).strip()
        head.run(f"until hal show {job} --json | grep -q '\"running\"'; do sleep 0.2; done")
        upgrades, removals = blocks[before_upgrade + 1 : -2], blocks[-2:]
        for where, block in upgrades:
            machines[where].run(block)
        gate.touch()
        head.run(f"hal wait {job}")
        assert head.run(f"hal logs {job}").split()[-1] == "over"
        for where, block in removals:
            machines[where].run(block)
            assert not (machines[where].own / "opt").exists()
            assert not list((machines[where].own / "units").iterdir())
            assert machines[where].host.pids() == []
        assert list((head.own / "backups").iterdir())


def test_the_script_says_what_it_needs(tmp_path: Path) -> None:
    """Usage on wrong words; nothing is changed without a wheel."""
    used = subprocess.run(["sh", SCRIPT, "haed"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (used.returncode, "sh install-hal.sh head WHEEL" in used.stderr) == (2, True)
    environment = {"PREFIX": str(tmp_path / "opt"), "PATH": "/usr/bin:/bin"}
    absent = subprocess.run(
        ["sh", SCRIPT, "head", "no.whl"], env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (absent.returncode, "there is no wheel no.whl" in absent.stderr) == (1, True)
    assert not list(tmp_path.iterdir())
