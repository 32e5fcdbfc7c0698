"""Several machines on one: network namespaces with addresses of their own, and what can go wrong between them.

Each host has a network namespace, joined to the others by a bridge (in a namespace of its own, so that nothing of it is
seen by this machine), a HAL_HOME, a boot id and a freezer cgroup. Real processes run in it; only the wires are virtual.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from hal.client.addresses.address import Address
from hal.client.sync_client import Client
from hal.core.model import HALError
from hal.runtime.home import Home
from hal.wire.address import format_address

DEADLINE_S: Final = 90.0
"""For everything that is waited for; far more than it takes."""
WIRE_PORT: Final = 7_422
MEMORY: Final = Path("/dev/shm")
FREEZER: Final = Path("/sys/fs/cgroup/freezer")

_ENTER: Final = """
if [ -n "$1" ]; then echo $$ > "$1/tasks"; fi
mount --bind "$2" /proc/sys/kernel/random/boot_id
mount --bind "$3" /etc/hosts
mount --bind "$4" /dev/shm
hostname "$5"
shift 5
exec "$@"
"""


def missing() -> str:
    """What these tests need and this machine lacks; '' when nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for tool in ("ip", "nft", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    name = f"hal{os.urandom(3).hex()}-try"
    trials = (
        ["ip", "netns", "add", name],
        ["ip", "-n", name, "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b"],
        ["ip", "-n", name, "link", "add", "br0", "type", "bridge"],
        ["ip", "netns", "exec", name, "nft", "add", "table", "inet", "hal"],
        ["unshare", "--mount", "--uts", "true"],
    )
    try:
        for words in trials:
            tried = subprocess.run(words, capture_output=True, text=True)
            if tried.returncode:
                return f"hosts cannot be made here: {' '.join(words)}: {tried.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return ""


class Direction(StrEnum):
    """Which packets of a host are dropped."""

    BOTH = "both"
    IN = "in"
    OUT = "out"


class Ran(NamedTuple):
    """What a command returned and wrote."""

    code: int
    out: str
    err: str


class Host:
    """One machine. Made by `Network.host`."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self._network = network
        self.name = name
        self.address = f"fd77::{number}" if network.ipv6 else f"10.77.0.{number}"
        self.root = network.root / name
        self.home = Home(self.root / "hal")
        self.env: dict[str, str] = {}
        """Further environment of what is started on it (FAKETIME, say)."""
        self._namespace = f"{network.id}-{number}"
        self._boot_file = self.root / "boot_id"
        self._memory = MEMORY / self._namespace
        """Its /dev/shm."""
        (self._memory / "run").mkdir(mode=0o700, parents=True)
        self._memory.chmod(0o1777)
        self._freezer = FREEZER / self._namespace if FREEZER.is_dir() else None
        self.root.mkdir(mode=0o700)
        (self.root / "run").mkdir(mode=0o700)
        self.home.root.mkdir(mode=0o700)
        self._new_boot()
        if self._freezer is not None:
            self._freezer.mkdir()
        ip("netns", "add", self._namespace)
        link = f"v{number}"
        ip("link", "add", link, "netns", network.switch, "type", "veth", "peer", "eth0", "netns", self._namespace)
        ip("-n", network.switch, "link", "set", link, "master", "br0", "up")
        prefix = ("/64", "nodad") if network.ipv6 else ("/24",)
        ip("-n", self._namespace, "address", "add", f"{self.address}{prefix[0]}", "dev", "eth0", *prefix[1:])
        for device in ("lo", "eth0"):
            ip("-n", self._namespace, "link", "set", device, "up")

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def environment(self) -> dict[str, str]:
        """Of everything that is started on it."""
        own = {"HAL_HOME": str(self.home.root), "XDG_RUNTIME_DIR": str(self.root / "run")}
        return {**os.environ, **own, **self.env}

    def command(self, argv: Sequence[str]) -> list[str]:
        """What runs `argv` on this host."""
        enter = ["nsenter", f"--net=/run/netns/{self._namespace}", "unshare", "--mount", "--uts"]
        freezer = str(self._freezer or "")
        own = [freezer, str(self._boot_file), str(self._network.names), str(self._memory), self.name]
        return [*enter, "sh", "-ec", _ENTER, "sh", *own, *argv]

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Any program, in the background, with pipes."""
        return subprocess.Popen(
            self.command(argv),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hal(self, *args: object, check: bool = True, stdin: str = "") -> Ran:
        """`hal ARGS` on this host."""
        ran = subprocess.run(
            self.command([sys.executable, "-m", "hal.cli.main", *map(str, args)]),
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
        )
        assert not check or ran.returncode == 0, f"{self.name}: hal {' '.join(map(str, args))}: {ran.stderr}"
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def start_controller(self) -> None:
        """The controller alone, without a node; returns when it answers."""
        self.home.create()
        output = self.home.output_file("controller").open("ab")
        with output:
            subprocess.Popen(
                self.command([sys.executable, "-m", "hal.daemons.controller", "--home", str(self.home.root)]),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        until(self._answers, f"the controller of {self.name} answers")

    def _answers(self) -> bool:
        with Client(Address(home=self.home), reconnect_s=0.0) as client:
            try:
                client.version()
            except HALError:
                return False
        return True

    def memory_files(self, pattern: str) -> list[Path]:
        """What is in its /dev/shm."""
        return sorted(self._memory.glob(pattern))

    def client(self) -> Client:
        """A client of the controller on this host (its Unix socket is a file, which no namespace hides)."""
        return Client(Address(home=self.home))

    def log(self, process: str) -> str:
        """All that a daemon of this host has logged: `controller`, `agent-NODE`, `keeper-NODE`."""
        file = self.home.log_file(process)
        return file.read_text() if file.exists() else ""

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────

    def part(self, direction: Direction = Direction.BOTH) -> None:
        """Drop every packet, or those of one direction, until `heal`."""
        self._drop(direction, "drop")

    def lose(self, percent: int, direction: Direction = Direction.BOTH) -> None:
        """Drop this share of the packets by chance, until `heal`."""
        self._drop(direction, f"numgen random mod 100 < {percent} drop")

    def part_from(self, other: Host, direction: Direction = Direction.BOTH) -> None:
        """Drop what is exchanged with one other host, until `heal`."""
        if direction is not Direction.OUT:
            self._rule("input", f"ip saddr {other.address} drop")
        if direction is not Direction.IN:
            self._rule("output", f"ip daddr {other.address} drop")

    def heal(self) -> None:
        """Let everything through again."""
        self._nft("flush ruleset")

    def _drop(self, direction: Direction, what: str) -> None:
        if direction is not Direction.OUT:
            self._rule("input", f'iifname "eth0" {what}')
        if direction is not Direction.IN:
            self._rule("output", f'oifname "eth0" {what}')

    def _rule(self, hook: str, rule: str) -> None:
        self._nft(
            "add table inet hal\n"
            f"add chain inet hal {hook} {{ type filter hook {hook} priority 0; policy accept; }}\n"
            f"add rule inet hal {hook} {rule}"
        )

    def _nft(self, text: str) -> None:
        enter = ["nsenter", f"--net=/run/netns/{self._namespace}"]
        ran = subprocess.run([*enter, "nft", "-f", "-"], input=text, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────

    def pids(self) -> list[int]:
        """All processes on it, also those that left its network."""
        found = set(ip("netns", "pids", self._namespace).split())
        if self._freezer is not None:
            found.update((self._freezer / "cgroup.procs").read_text().split())
        return sorted(int(word) for word in found)

    def power_off(self) -> None:
        """Kill everything at once; the disk stays. What is started next runs in another boot."""
        self.thaw()
        deadline_s = time.monotonic() + DEADLINE_S
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline_s, f"{self.name}: {pids} cannot be killed"
            select.select([], [], [], 0.01)
        self._new_boot()

    def freeze(self) -> None:
        """Suspend it: nothing of it runs until `thaw`; its clocks go on. Needs the freezer of cgroup v1."""
        self._freezer_state("FROZEN")

    def thaw(self) -> None:
        """Resume it."""
        if self._freezer is not None:
            self._freezer_state("THAWED")

    def _freezer_state(self, state: str) -> None:
        assert self._freezer is not None, "there is no freezer of cgroup v1"
        file = self._freezer / "freezer.state"
        file.write_text(state)
        until(lambda: file.read_text().strip() == state, f"{self.name} is {state}")

    def _new_boot(self) -> None:
        self._boot_file.unlink(missing_ok=True)  # a new file: what ran before had the old one mounted
        self._boot_file.write_text(f"{uuid.uuid4()}\n")

    def remove(self) -> None:
        """End all of it."""
        end_s = time.monotonic() + DEADLINE_S
        self.power_off()
        while self._freezer is not None and not self._freezer_removed():
            assert time.monotonic() < end_s, f"the freezer of {self.name} stays: {self._members()}"
            select.select([], [], [], 0.02)
            self.power_off()  # what was being forked while the others were killed
        ip("netns", "delete", self._namespace)
        shutil.rmtree(self._memory, ignore_errors=True)

    def _freezer_removed(self) -> bool:
        try:
            if self._freezer is not None:
                self._freezer.rmdir()
        except OSError:
            return False
        return True

    def _members(self) -> list[str]:
        """What keeps its freezer: cgroups in it, and of each thread what it is and does."""
        assert self._freezer is not None
        told = [path.name for path in self._freezer.iterdir() if path.is_dir()]
        for thread in (self._freezer / "tasks").read_text().split():
            with contextlib.suppress(OSError):
                told.append(" ".join(Path(f"/proc/{thread}/stat").read_text().split()[:4]))
        return told


class Network:
    """Hosts on one bridge; a context manager that leaves nothing behind."""

    def __init__(self, *, ipv6: bool = False) -> None:
        """
        Args:
            ipv6: they have addresses of IPv6 only.
        """
        self.ipv6 = ipv6
        self.id = f"hal{os.urandom(3).hex()}"
        self.switch = f"{self.id}-sw"
        self.root = Path(tempfile.mkdtemp(prefix="c", dir=Path(os.environ["HAL_HOME"]).parent))
        self.names = self.root / "hosts"
        """The /etc/hosts of all of them."""
        self.names.write_text("127.0.0.1 localhost\n")
        self.hosts: list[Host] = []

    def __enter__(self) -> Network:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for host in reversed(self.hosts):
            host.remove()
            host.home.drop_passage()
        ip("netns", "delete", self.switch)
        shutil.rmtree(self.root, ignore_errors=True)

    def host(self, name: str) -> Host:
        """Another machine."""
        host = Host(self, name, len(self.hosts) + 1)
        self.hosts.append(host)
        with self.names.open("a") as file:
            file.write(f"{host.address} {name}\n")
        return host


class Cluster:
    """A HAL over several hosts: `head` has the controller and a node of its own, the others joined it.

    Attributes:
        head: where the controller runs.
        workers: the others, each a node of its own name.
    """

    def __init__(self, network: Network, workers: int, *, cpus: int = 2, toml: str = "") -> None:
        self.network = network
        self.cpus = cpus
        self.head = network.host("head")
        self.workers = [network.host(f"w{number}") for number in range(1, workers + 1)]
        self.head.home.config.write_text(f'[server]\nwire = "{self.wire}"\n{toml}')

    @property
    def wire(self) -> str:
        """Where agents reach the controller."""
        return format_address(self.head.address, WIRE_PORT)

    def up(self) -> Cluster:
        """Start the controller, and let every worker join."""
        self.start_head()
        for worker in self.workers:
            self.join(worker)
        return self

    def start_head(self) -> None:
        """`hal up` on the head, the first time or again."""
        self.head.hal("up", "--no-restart", *self._shape(self.head))

    def join(self, worker: Host, *options: object) -> None:
        """Have it join with a fresh token."""
        token = self.head.hal("token", "create", "--node", worker.name).out.strip()
        place = ("--controller", self.wire)
        worker.hal("agent", "--no-restart", "--join", "-", *place, *self._shape(worker), *options, stdin=token + "\n")

    def rejoin(self, worker: Host) -> None:
        """`hal agent` again, as after a boot."""
        worker.hal("agent")

    def node_state(self, worker: Host) -> str:
        """As the controller tells it."""
        with self.head.client() as client:
            return str(client.node(worker.name).state)

    def until_node(self, worker: Host, state: str) -> None:
        """Wait until the controller tells that."""
        until(lambda: self.node_state(worker) == state, f"{worker.name} is {state}")

    def _shape(self, host: Host) -> list[str]:
        return ["--name", host.name, "--cpus", str(self.cpus), "--memory", "1GiB"]


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a state that nobody announces.

    Raises:
        AssertionError: it did not come in time.
    """
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"never: {what}"
        select.select([], [], [], 0.02)


def ip(*args: str) -> str:
    """`ip ARGS`, which must work; its output."""
    ran = subprocess.run(["ip", *args], capture_output=True, text=True)
    assert ran.returncode == 0, f"ip {' '.join(args)}: {ran.stderr}"
    return ran.stdout


@contextlib.contextmanager
def cluster_of(workers: int, *, cpus: int = 2, toml: str = "") -> Iterator[Cluster]:
    """A cluster that runs, for as long as the block; nothing of it is left behind.

    Args:
        workers: hosts beside the head.
        cpus: that each node offers.
        toml: further lines of the head's hal.toml; the first belong to `[server]`.
    """
    with Network() as network:
        yield Cluster(network, workers, cpus=cpus, toml=toml).up()
