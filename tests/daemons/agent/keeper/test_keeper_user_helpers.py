"""Helpers of users, seen from the keeper: how many there are, when they end, and what one that lies can do."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import helper_journal, helper_link, user_helpers
from hal.daemons.agent.keeper.devices import StepDevices
from hal.daemons.agent.keeper.given_files import Scripts
from hal.daemons.agent.keeper.helper_link import MAX_OUTSTANDING, HelperLink
from hal.daemons.agent.keeper.helper_messages import Message
from hal.daemons.agent.keeper.limits import Cgroups
from hal.daemons.agent.keeper.loop import Descriptors
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.agent.keeper.ports import (
    Ended,
    Instant,
    KeeperConfig,
    Launch,
    NeverStarted,
    Spawned,
    SpawnerEvent,
    SpawnFailed,
)
from hal.daemons.agent.keeper.spawner import HelperSpawner
from hal.daemons.agent.keeper.user_helpers import IDLE_MS, MAX_AGE_MS, UserHelpers
from hal.daemons.agent.keeper.watch import read_clocks
from hal.runtime.home import Home
from hal.runtime.step_users import Serving
from hal.wire.frames.agent_keeper import StepStart, StepTemplate, Usage
from tests.unix_users import needs_root

pytestmark = needs_root

LOOKS = 500
E = TypeVar("E", NeverStarted, SpawnFailed, Ended)
TURN_MS = 50

PRETENDER = """
import json, os, signal, socket, sys
keeper = socket.socket(fileno=0)
def say(*messages):
    data = json.dumps(messages).encode()
    keeper.sendall(len(data).to_bytes(4, "little") + data)
def become(uid):
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.setresuid(uid, uid, uid)
        os.write(theirs, b".")
        signal.pause()
    os.read(ours, 1)
    say(["R", pid, 1])
    return pid
pid = 0
user = sys.argv[2] if len(sys.argv) > 2 else ""
try:
    exec(os.environ["HAL_TEST_PART"])
    while keeper.recv(1 << 16):
        pass
except OSError:
    pass
if pid:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""
"""In the place of recorder and helper: whatever a user could make of theirs. Its part says what it does for whom."""
OTHERS = """
if user == "daemon":
    pid = become(1)
if user == "bin":
    pid = become(2)
    keeper.recv(1 << 16)
    say(["P", "2.0.1.0", 1, 0, 0, 7], ["N", "2.0.1.0", "x"], ["U", "2.0.1.0", "x"], ["G", "2.0.1.0"])
    say(["X", 1, "2.0.1.0", 0, 0, [0, 0, 0, 0, 0], 0, ""], ["X", 1, "1.0.1.0", 0, 0, [0, 0, 0, 0, 0], 0, ""])
    say(["F", 1, "1.0.1.0", 127, "mine", 0, "2.0.1.0"], ["F", 1, "no step", 127, "mine", 0, ""])
    say(["F", 1, "1.0.1.0", 127, "mine", 0, ""])
"""
GARBAGE = {
    "a pid that is not its child's": 'say(["R", 1, 1])',
    "a message without end": 'keeper.sendall(b"\\xff\\xff\\xff\\x7f" + b"x" * 100)',
    "no message at all": 'keeper.sendall(b"\\x04\\x00\\x00\\x00" + b"\\xff" * 4)',
    "a number out of range": 'say(["R", 1 << 60, 1])',
    "what is not among the messages": 'say(["Z", 1])',
}


class Node:
    """A spawner as a keeper of root has it, with nothing around it."""

    def __init__(self, root: Path, cgroups: Cgroups | None = None) -> None:
        self.home = Home(root / "home")
        self.home.create()
        journals = self.home.root / "journals"
        journals.mkdir()
        self.watched = Descriptors()
        config = KeeperConfig(
            node="n1", home=str(self.home.root), capacity={}, user="root", serving=Serving.EACH_AS_ITSELF, least_uid=1
        )
        self.spawner = HelperSpawner(
            config=config,
            journal_dir=journals,
            outputs=OutputFiles(self.home.root / "steps"),
            watcher=self.watched,
            cgroups=cgroups or Cgroups("hal-none", own=""),
            helpers=1,
            log_fd=2,
            environ={},
            scripts=Scripts(self.home, "scripts"),
            devices=StepDevices(("all",)),
        )
        self.events: list[SpawnerEvent] = []

    def close(self) -> None:
        self.spawner.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass
        self.home.drop_passage()

    def launch(self, job: int, user: str, *command: str) -> StepId:
        step = StepId(job, 0, 1, 0)
        start = StepStart(step, 0, f"token-{job}", ("n1",), 0, 1, 0)
        self.spawner.launch([Launch(start, StepTemplate(command=command or ("true",), user=user), {})])
        return step

    def until(self, kind: type[E], *, skip_ms: int = 0) -> E:
        """Turn until that is told; each turn is so much later than the one before it."""
        for look in range(LOOKS):
            found = next((event for event in self.events if isinstance(event, kind)), None)
            if found is not None:
                return found
            self.turn(look * skip_ms)
        raise AssertionError(f"no {kind.__name__}: {self.events}")

    def turn(self, later_ms: int = 0) -> None:
        """Do what a keeper does in a turn, so much later than it is."""
        self.watched.wait(TURN_MS)
        now = read_clocks()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            self.spawner.child_ended(pid, os.waitstatus_to_exitcode(status), Usage(), now)
        self.spawner.turn(Instant(now.wall_ms, now.boot_ms + later_ms))
        self.events += self.spawner.take_events()

    def until_all(self, kind: type[E], count: int) -> None:
        """Turn until that was told so often."""
        seen: list[SpawnerEvent] = []
        while len(seen) < count:
            seen.append(self.until(kind))
            self.events.remove(seen[-1])


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """One at which helpers are pretenders."""
    script = tmp_path / "recorder.py"
    script.write_text(PRETENDER)
    monkeypatch.setattr(helper_link, "RECORDER_SCRIPT", str(script))
    monkeypatch.setenv("HAL_TEST_PART", "")
    made = Node(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_what_a_users_helper_says_about_others_steps_is_dropped(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what it was given counts, and only what it could still report about that."""
    monkeypatch.setenv("HAL_TEST_PART", OTHERS)
    node.launch(2, "daemon")
    mine = node.launch(1, "bin")
    failed = node.until(SpawnFailed)
    assert node.events == [failed]
    assert (failed.step, failed.heir) == (mine, None)


@pytest.mark.parametrize("part", GARBAGE.values(), ids=list(GARBAGE))
def test_a_helper_that_talks_nonsense_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Its step is refused here; the keeper waits for nothing and signals nobody."""
    monkeypatch.setenv("HAL_TEST_PART", f"if user: {part}")
    step = node.launch(1, "bin")
    assert node.until(NeverStarted).step == step


def test_a_user_who_cannot_be_looked_up_in_time_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name service that hangs holds up that helper alone, and not for ever."""
    monkeypatch.setenv("HAL_TEST_PART", 'if user == "bin": pid = os.fork() or signal.pause()')
    step = node.launch(1, "bin")
    refusal = node.until(NeverStarted, skip_ms=1_000)
    assert refusal == NeverStarted(step, "the account of user 'bin' could not be looked up on this node")


# ── how many, and how long ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[UserHelpers, Callable[[], None]]]:
    """Real helpers, and what waits until all of them are ready."""
    watched, made = Descriptors(), []

    def receive(link: HelperLink, message: Message) -> None:
        link.greeted = True

    def start(user: str, guarded: bool) -> HelperLink:
        made.append(HelperLink(tmp_path / f"helper-{len(made)}.log", watched, receive, 2))
        return made[-1]

    def ready() -> None:
        while not all(link.greeted for link in made):
            watched.wait(TURN_MS)

    try:
        yield UserHelpers(start, 2), ready
    finally:
        for link in made:
            link.close()
            os.waitpid(link.pid, 0)


@pytest.mark.parametrize(("idle_ms", "open_still"), [(IDLE_MS, True), (IDLE_MS + 1, False)])
def test_an_idle_helper_ends_after_a_while(
    pool: tuple[UserHelpers, Callable[[], None]], idle_ms: int, open_still: bool
) -> None:
    """Counted from when it was first found idle."""
    helpers, ready = pool
    link = helpers.choose("alice", 1, guarded=False)
    assert link is not None
    ready()
    helpers.end_idle(5_000)
    helpers.end_idle(5_000 + idle_ms)
    assert link.open is open_still


def test_an_old_helper_ends_as_soon_as_it_is_idle(pool: tuple[UserHelpers, Callable[[], None]]) -> None:
    """The user's groups may have changed."""
    helpers, ready = pool
    link = helpers.choose("alice", 1, guarded=False)
    assert link is not None
    ready()
    helpers.end_idle(MAX_AGE_MS + 2)
    assert not link.open


def test_the_longest_idle_helper_makes_room(
    pool: tuple[UserHelpers, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are as many as are kept warm; with none idle, a user's first helper is started nevertheless."""
    monkeypatch.setattr(user_helpers, "MAX_WARM", 2)
    helpers, ready = pool
    first, second = (helpers.choose(user, 1, guarded=False) for user in ("alice", "bob"))
    assert first is not None
    assert second is not None
    ready()
    helpers.end_idle(1_000)
    second.idle_since_ms = 900
    third = helpers.choose("carol", 2_000, guarded=False)
    assert (first.open, second.open, third is not None) == (True, False, True)


def test_there_is_a_bound_on_helpers_of_all_users(
    pool: tuple[UserHelpers, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is idle; who comes then is refused."""
    monkeypatch.setattr(user_helpers, "MAX_WARM", 1)
    monkeypatch.setattr(user_helpers, "MAX_USER_HELPERS", 2)
    helpers, _ = pool
    started = [helpers.choose(user, 1, guarded=False) for user in ("alice", "bob", "carol")]
    assert [link is not None for link in started] == [True, True, False]


def test_a_helper_that_dies_delays_the_next_one_of_its_user_alone(
    pool: tuple[UserHelpers, Callable[[], None]],
) -> None:
    """The delay doubles."""
    helpers, _ = pool
    helpers.died_early("alice", 1_000)
    helpers.died_early("alice", 1_100)
    assert [helpers.room(user, 1_299) for user in ("alice", "bob")] == [0, MAX_OUTSTANDING]
    assert helpers.room("alice", 1_300) == MAX_OUTSTANDING


def test_where_the_kernel_looks_at_who_writes_the_keeper_moves_helpers(tmp_path: Path) -> None:
    """(Linux before 5.16, cgroups of version 2) One step at a time; each has its own cgroup, and no helper stays."""
    cgroups = Cgroups(f"hal-test-{os.getpid()}")
    if not cgroups.can_limit("pids"):
        pytest.skip("no pids cgroup can be written here")
    node = Node(tmp_path, cgroups)
    node.spawner._users._moves_helpers = True  # as a helper would have reported
    try:
        steps = [node.launch(job, "daemon", "cat", "/proc/self/cgroup") for job in (1, 2, 3)]
        node.until_all(Ended, 3)
        texts = [(node.home.root / "steps" / str(step.job) / "0.1.0.stdout").read_text() for step in steps]
        slots = [next(line.rpartition("/")[2] for line in text.splitlines() if "pids" in line) for text in texts]
        (link,) = node.spawner._users.helpers.links.values()
        where = Path(f"/proc/{link.worker}/cgroup").read_text()
        assert [slot[:1] for slot in slots] == ["s"] * 3
        assert "/hal-test-" not in where
    finally:
        node.close()


def test_nothing_is_left_of_a_helper_that_ended_idle(tmp_path: Path) -> None:
    """Neither its process, nor its journal, nor files for outputs; and the next step gets another helper."""
    node = Node(tmp_path)
    try:
        node.launch(1, "daemon")
        node.until_all(Ended, 1)
        helpers = node.spawner._users.helpers.links
        (journal,) = [link.journal for link in helpers.values()]
        for look in range(LOOKS):
            if not helpers and not journal.exists():
                break
            node.turn(look * IDLE_MS // 4)
            node.spawner.confirm()
        assert (list(helpers), journal.exists()) == ([], False)
        assert [name for name in os.listdir(node.home.root / "steps" / ".spare") if name.startswith(journal.stem)] == []
        node.launch(2, "daemon")
        node.until_all(Ended, 1)
    finally:
        node.close()


def test_a_long_journal_of_a_dead_helper_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user could kill it again and again; what each turn reads is bounded, and the step is followed to its end."""
    monkeypatch.setattr(helper_journal, "PIECE_BYTES", 1 << 10)
    node = Node(tmp_path)
    try:
        node.launch(1, "daemon", "sleep", "600")
        pid = node.until(Spawned).pid
        (link,) = node.spawner._users.helpers.links.values()
        with link.journal.open("a") as file:
            file.write("".join(f"I 9.{task}.1.0 -\n" for task in range(1_000)))
        os.kill(link.worker, signal.SIGKILL)
        turns = 0
        while not node.spawner._dead:
            node.turn()
        while node.spawner._dead:
            node.turn()
            turns += 1
        assert turns >= link.journal.stat().st_size // (1 << 10) - 1
        os.kill(pid, signal.SIGTERM)
        assert node.until(Ended).status == -signal.SIGTERM
    finally:
        node.close()
