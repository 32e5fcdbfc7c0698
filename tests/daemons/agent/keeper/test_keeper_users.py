"""A keeper of root runs each step as the user who submitted it, by helpers of that user."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.wire.frames.agent_keeper import ExitCause, Refused, StepTemplate
from tests.daemons.agent.keeper.driving import Keeper
from tests.unix_users import UnixUser, needs_root, unix_users

pytestmark = needs_root
_jobs = itertools.count(1)


@pytest.fixture(scope="module")
def users() -> Iterator[list[UnixUser]]:
    with unix_users(2) as made:
        yield made


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory, users: list[UnixUser]) -> Iterator[Keeper]:
    one = Keeper(tmp_path_factory.mktemp("home"))
    try:
        one.start({"HAL_RUN_AS_OWNER": "0"})
        yield one
    finally:
        one.__exit__(None, None, None)


def shell(script: str, user: UnixUser | str, **fields: object) -> StepTemplate:
    name = user if isinstance(user, str) else user.name
    return StepTemplate(command=("sh", "-c", script), user=name, env={"PATH": "/usr/bin:/bin"}, **fields)  # type: ignore[arg-type]


def run(keeper: Keeper, script: str, user: UnixUser, **fields: object) -> str:
    """What a step of that user writes."""
    step = StepId(next(_jobs), 0, 1, 0)
    exit_ = keeper.run(shell(script, user, **fields), step)
    assert exit_.code == 0, (exit_, keeper.log(step).data)
    return keeper.log(step).data.decode()


def test_a_step_has_the_ids_of_its_user(keeper: Keeper, users: list[UnixUser]) -> None:
    """User, group, and all groups; nothing of root's is left."""
    alice = users[0]
    text = run(keeper, "id -u; id -g; id -G; grep -E '^(Uid|Gid|CapEff|CapPrm|CapAmb)' /proc/self/status", alice)
    uid, gid, groups, *status = text.splitlines()
    assert (int(uid), int(gid)) == (alice.uid, alice.gid)
    assert {int(one) for one in groups.split()} == {alice.gid, alice.group}
    assert [set(line.split()[1:]) for line in status] == [{uid}, {gid}, {"0" * 16}, {"0" * 16}, {"0" * 16}]


def test_what_its_account_says_is_in_its_environment(keeper: Keeper, users: list[UnixUser]) -> None:
    """Home, shell and name; it begins in its home, under HAL's umask, and nothing of root's variables is there."""
    alice = users[0]
    text = run(keeper, "echo $HOME $USER $LOGNAME $SHELL $HAL_USER; pwd; umask", alice)
    assert text.splitlines() == [
        f"{alice.home} {alice.name} {alice.name} /bin/sh {alice.name}",
        str(alice.home),
        "0022",
    ]


def test_a_user_without_an_account_is_refused_so_that_the_task_goes_elsewhere(keeper: Keeper) -> None:
    """So is one below the least user id: a system account is not for jobs."""
    codes = []
    for name in ("hal-nobody-knows", "daemon", "root2"):
        step = StepId(next(_jobs), 0, 1, 0)
        keeper.launch(shell("id", name), step)
        refusal = keeper.until_frame(Refused).steps[0]
        codes.append((refusal.step == step, refusal.code))
    assert codes == [(True, "no-account")] * 3


def test_a_step_of_nobody_knows_whom_is_refused(keeper: Keeper) -> None:
    """It would otherwise be root's."""
    keeper.launch(shell("id", ""), StepId(next(_jobs), 0, 1, 0))
    assert keeper.until_frame(Refused).steps[0].code == "foreign-user"


def test_steps_of_root_are_roots(keeper: Keeper) -> None:
    step = StepId(next(_jobs), 0, 1, 0)
    keeper.run(shell("id -u", "root"), step)
    assert keeper.log(step).data == b"0\n"


def test_a_script_is_readable_by_its_user_alone_and_is_deleted(keeper: Keeper, users: list[UnixUser]) -> None:
    """It is where others may not look; another user who knows its name may not read it."""
    alice, bob = users
    step = StepId(next(_jobs), 0, 1, 0)
    script = "#!/bin/sh\nstat -c '%a %U' $0; echo $0; read line < go; exit 3\n"
    os.mkfifo(alice.home / "go")
    keeper.launch(StepTemplate(script=script, user=alice.name, workdir=str(alice.home)), step)
    keeper.until_log(step, b".0\n")
    mode, path = keeper.log(step).data.decode().splitlines()
    assert mode == f"500 {alice.name}"
    assert run(keeper, f"cat {path} || echo no; ls $(dirname {path}) || echo no", bob).splitlines() == ["no", "no"]
    with open(alice.home / "go", "w") as go:
        go.write("\n")
    assert keeper.exit_of(step).code == 3
    keeper.poll(lambda: not os.path.exists(path))


def test_its_output_is_its_own_and_open_to_it_alone(keeper: Keeper, users: list[UnixUser]) -> None:
    """It may open /dev/stdout again; nobody reaches the files by a path, not even the one who wrote them."""
    alice, bob = users
    text = run(keeper, "echo first; echo second >> /dev/stdout; cat $HAL_STDOUT || echo no path", alice)
    assert text.splitlines() == ["first", "second", "no path"]
    files = [path for path in keeper.home.node("n1").steps.rglob("*.stdout") if path.read_bytes().startswith(b"first")]
    assert [run(keeper, f"cat {path} || echo no", bob) for path in files] == ["no\n"]


def test_files_that_a_job_names_are_opened_as_its_user(keeper: Keeper, users: list[UnixUser]) -> None:
    """Another user's directory is closed to it; its own file belongs to it."""
    alice, bob = users
    step = StepId(next(_jobs), 0, 1, 0)
    exit_ = keeper.run(shell("id", bob, stdout=str(alice.home / "planted")), step)
    assert (exit_.cause, exit_.code) == (ExitCause.SPAWN_FAILED, 126)
    assert "Permission denied" in exit_.message
    run(keeper, "echo mine", bob, stdout=str(bob.home / "own"), stderr=str(bob.home / "own"))
    assert ((bob.home / "own").stat().st_uid, (bob.home / "own").read_text()) == (bob.uid, "mine\n")


def test_a_work_directory_of_another_user_is_not_entered(keeper: Keeper, users: list[UnixUser]) -> None:
    alice, bob = users
    exit_ = keeper.run(shell("id", bob, workdir=str(alice.home)), StepId(next(_jobs), 0, 1, 0))
    assert (exit_.cause, exit_.code) == (ExitCause.SPAWN_FAILED, 126)


def test_its_limits_are_set_and_it_may_not_change_them(keeper: Keeper, users: list[UnixUser]) -> None:
    """It is in a cgroup of its own, whose files are root's; what it leaves behind ends with it."""
    script = """
    grep -E 'pids' /proc/self/cgroup | sed 's|.*/||'
    at=/sys/fs/cgroup/pids$(grep -E 'pids' /proc/self/cgroup | cut -d: -f3)
    (echo 9999 > $at/pids.max) 2>/dev/null || echo no
    (echo $$ > $(dirname $at)/cgroup.procs) 2>/dev/null || echo no
    """
    slot, *rest = run(keeper, script, users[0], memory_bytes=64 << 20).splitlines()
    assert (slot[0], rest) == ("s", ["no", "no"])


def test_one_user_reaches_nothing_of_anothers_step(keeper: Keeper, users: list[UnixUser]) -> None:
    """Neither signals, nor memory, environment, descriptors, limits or its cgroup; nor its helper's."""
    alice, bob = users
    step = StepId(next(_jobs), 0, 1, 0)
    keeper.launch(shell("SECRET=x exec sleep 600", alice), step)
    pid = keeper.running(step)
    helper = processes.read_process(pid)
    assert helper is not None
    script = "".join(
        f"kill -0 {one} && echo signalled {one}; cat /proc/{one}/environ && echo read {one}; ls /proc/{one}/fd/0"
        f" && echo opened {one}; cat /proc/{one}/mem && echo mem {one}; prlimit --pid {one} --nofile=10 && echo {one};"
        for one in (pid, helper.parent, keeper.process.pid)
    )
    assert run(keeper, f"({script}) 2>/dev/null; true", bob) == ""
    keeper.stop(step, grace_ms=0)
    assert keeper.exit_of(step).cause is ExitCause.CANCELLED


def test_not_even_its_own_user_opens_what_a_helper_holds(keeper: Keeper, users: list[UnixUser]) -> None:
    """Its socket to the keeper and the journal: a step could otherwise speak for its helper."""
    script = "at=/proc/$PPID; (ls -l $at/fd; cat $at/environ; cat $at/mem) 2>/dev/null; grep -c . $at/stat"
    assert run(keeper, script, users[0]) == "1\n"


def test_a_helper_that_its_user_kills_costs_that_user_alone(keeper: Keeper, users: list[UnixUser]) -> None:
    """Another user's step goes on; the one whose helper died is still seen to end, and later ones run."""
    alice, bob = users
    going, step = StepId(next(_jobs), 0, 1, 0), StepId(next(_jobs), 0, 1, 0)
    keeper.launch(shell("sleep 600", bob), going)
    keeper.running(going)
    assert keeper.run(shell("sleep 0.3; kill -9 $PPID; sleep 0.3; exit 7", alice), step).code == 7
    assert run(keeper, "echo again", alice) == "again\n"
    assert run(keeper, "echo still", bob) == "still\n"
    assert going not in keeper.exits
    keeper.stop(going, grace_ms=0)
    keeper.exit_of(going)


@pytest.mark.slow
def test_a_process_that_claims_to_be_of_anothers_step_is_not_taken_for_it(
    keeper: Keeper, users: list[UnixUser]
) -> None:
    """The variables that mark a step are no secret: with them, one could keep another's step from ending."""
    alice, bob = users
    step, claimant = StepId(next(_jobs), 0, 1, 0), StepId(next(_jobs), 0, 1, 0)
    forged = f"HAL_ATTEMPT_TOKEN={keeper.token_of(step)} HAL_NODE_RANK=0 HAL_NODE=n1 HAL_HOME={keeper.home.root}"
    keeper.launch(shell(f"env -i {forged} sleep 600 & echo up; wait", bob), claimant)
    keeper.until_log(claimant, b"up")
    exit_ = keeper.run(shell("sleep 600 & exit 0", alice), step)
    assert (exit_.code, "1 process it left behind was killed" in exit_.message) == (0, True)
    assert claimant not in keeper.exits
    keeper.stop(claimant, grace_ms=0)
    keeper.exit_of(claimant)


@pytest.mark.slow
@pytest.mark.parametrize("hide", ["setsid", "env -i setsid", "setsid sh -c 'exec env -i \"$@\"' sh"])
def test_what_a_step_leaves_behind_ends_with_it(keeper: Keeper, users: list[UnixUser], hide: str) -> None:
    """However it hides, it is in the step's cgroup."""
    alice = users[0]
    keeper.run(shell(f"{hide} sleep 4711 & sleep 0.1; exit 0", alice), StepId(next(_jobs), 0, 1, 0))
    left = [
        pid
        for pid in processes.all_processes()
        if processes.real_uid(pid) == alice.uid and _words(pid)[:1] == [b"sleep"]
    ]
    assert left == []


def test_many_short_steps_of_one_user_all_end_well(keeper: Keeper, users: list[UnixUser]) -> None:
    """Helpers are started as steps wait; outputs go to whom they belong."""
    job = next(_jobs)
    steps = [StepId(job, task, 1, 0) for task in range(60)]
    keeper.launch(shell("echo $HAL_TASK", users[0]), *steps)
    assert [keeper.exit_of(step).code for step in steps] == [0] * 60
    assert [keeper.log(step).data for step in steps] == [b"%d\n" % task for task in range(60)]


def test_steps_on_credit_follow_one_another_at_their_users_helper(keeper: Keeper, users: list[UnixUser]) -> None:
    """Each is given its outputs beforehand."""
    job = next(_jobs)
    first, *others = (StepId(job, task, 1, 0) for task in range(6))
    keeper.launch(shell("sleep 0.2; echo 0", users[0]), first)
    keeper.running(first)
    keeper.launch(shell("echo $HAL_TASK", users[0]), *others, credit_ms=20_000)
    assert [keeper.exit_of(step).code for step in (first, *others)] == [0] * 6
    assert [keeper.log(step).data for step in (first, *others)] == [b"%d\n" % task for task in range(6)]


@pytest.mark.slow
def test_a_guarded_step_is_its_users_and_dies_with_the_keeper(
    tmp_path_factory: pytest.TempPathFactory, users: list[UnixUser]
) -> None:
    """A change of user resets the signal by which the kernel ends its helper."""
    keeper = Keeper(tmp_path_factory.mktemp("home"))
    step = StepId(1, 0, 1, 0)
    try:
        keeper.home.config.write_text("[node]\nno_new_privileges = true\n")
        keeper.start({"HAL_RUN_AS_OWNER": "0"})
        keeper.launch(shell("grep NoNew /proc/self/status; id -u; exec sleep 600", users[0], guard=True), step)
        pid = keeper.running(step)
        keeper.until_log(step, b"%d\n" % users[0].uid)
        assert processes.real_uid(pid) == users[0].uid
        assert keeper.log(step).data.split()[:2] == [b"NoNewPrivs:", b"1"]
        keeper.die()
        keeper.poll(lambda: processes.read_process(pid) is None)
    finally:
        keeper.__exit__(None, None, None)


@pytest.mark.slow
def test_a_keeper_that_is_started_again_adopts_steps_of_several_users(
    tmp_path_factory: pytest.TempPathFactory, users: list[UnixUser]
) -> None:
    """Their ends are seen, their outputs complete, their limits hold; one can still be ended."""
    keeper = Keeper(tmp_path_factory.mktemp("home"))
    steps = [StepId(1, 0, 1, 0), StepId(2, 0, 1, 0), StepId(3, 0, 1, 0)]
    try:
        keeper.start({"HAL_RUN_AS_OWNER": "0"})
        for step, user in zip(steps, (*users, users[0]), strict=True):
            os.mkfifo(user.home / f"go{step.job}")
            script = f"id -u; read line < go{step.job}; echo $line; exit {step.job}"
            keeper.launch(shell(script, user, workdir=str(user.home)), step)
            keeper.running(step)
        keeper.die()
        keeper.start({"HAL_RUN_AS_OWNER": "0"})
        for step, user in zip(steps[:2], users, strict=True):
            with open(user.home / f"go{step.job}", "w") as go:
                go.write(f"for {user.name}\n")
        assert [keeper.exit_of(step).code for step in steps[:2]] == [1, 2]
        assert [keeper.log(step).data.decode().split() for step in steps[:2]] == [
            [str(user.uid), "for", user.name] for user in users
        ]
        keeper.stop(steps[2], grace_ms=0)
        assert keeper.exit_of(steps[2]).cause is ExitCause.CANCELLED
        assert run(keeper, "id -u", users[1]) == f"{users[1].uid}\n"
    finally:
        keeper.__exit__(None, None, None)


def test_a_stopped_helper_of_one_user_delays_no_other(keeper: Keeper, users: list[UnixUser]) -> None:
    """The keeper waits for nobody; the helper is made to go on."""
    alice, bob = users
    step = StepId(next(_jobs), 0, 1, 0)
    keeper.launch(shell("kill -STOP $PPID; exit 5", alice), step)
    assert [run(keeper, "id -u", bob) for _ in range(3)] == [f"{bob.uid}\n"] * 3
    for info in processes.all_processes().values():
        if info.state == "T" and processes.real_uid(info.pid) == alice.uid:
            os.kill(info.pid, signal.SIGCONT)
    assert keeper.exit_of(step).code == 5


@pytest.mark.slow
def test_safety_no_step_has_more_rights_than_its_user_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, users: list[UnixUser]
) -> None:
    """The keeper is killed while helpers become their users, while steps are begun, and while they end; so are helpers
    and recorders. Every step that ever ran says whose it was."""
    keeper = Keeper(tmp_path_factory.mktemp("home"))
    alice, bob = users
    said = alice.home / "said", bob.home / "said"
    script = 'echo $(id -u) $(id -g) $(grep -c "CapEff:.0000000000000000" /proc/self/status) >> $HOME/said'
    try:
        keeper.start({"HAL_RUN_AS_OWNER": "0"})
        for round_ in range(8):
            jobs = next(_jobs), next(_jobs)
            for job, user in zip(jobs, users, strict=True):
                steps = [StepId(job, task, 1, 0) for task in range(12)]
                keeper.launch(shell(script, user, guard=bool(round_ % 3 == 2)), *steps)
            if round_ % 2:
                victims = [pid for pid in processes.all_processes() if _is_helper_of(pid, keeper)]
                for pid in victims[round_::3]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            elif round_ >= 4:
                keeper.until(lambda job=jobs[0]: any(step.job == job for step in keeper.started))
            keeper.die()
            keeper.start({"HAL_RUN_AS_OWNER": "0"})
        for user in users:
            run(keeper, "true", user)
        for file, user in zip(said, users, strict=True):
            lines = file.read_text().splitlines()
            assert set(lines) == {f"{user.uid} {user.gid} 1"}
    finally:
        keeper.__exit__(None, None, None)


def _is_helper_of(pid: int, keeper: Keeper) -> bool:
    """Whether it is a helper, or a recorder, of that home."""
    return any(str(keeper.home.root).encode() in word for word in _words(pid)[:6])


def _words(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
