"""What runs inside a job is the job's submitter to HAL, and no more than a user (C2, attempts 41 and 42)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.client.address_lookup import find_address
from hal.client.sync_client import Client
from hal.core.model import DeniedError
from tests.attacks.other_user import as_user
from tests.e2e.conftest import LiveHal, new_home, until
from tests.unix_users import unix_users

HAL = "{python} -m hal.cli.main"


@pytest.fixture(scope="module")
def crowd_hal() -> Iterator[LiveHal]:
    """A HAL of root that lets others in, who get root's account: what C1 is about is looked at elsewhere."""
    live = LiveHal(new_home())
    (live.root / "hal.toml").write_text("[access]\nrun_as_owner = true\n")
    live.root.chmod(0o700)
    try:
        yield live.up("--nodes", "1", "--cpus", "8")
    finally:
        live.remove()


def inside(live: LiveHal, script: str, user: str = "alice", *options: str) -> tuple[int, str, str]:
    """A job of that user's in which `hal` is this one."""
    import sys

    text = f'hal() {{ {sys.executable} -m hal.cli.main "$@"; }}; {script}'
    ran = live.run("run", "-u", user, *options, "--", "sh", "-c", text)
    return ran.code, ran.out, ran.err


def test_hal_in_a_job_is_its_submitter_and_no_admin(crowd_hal: LiveHal) -> None:
    """`hal whoami` says alice, user; an admin's token is refused; so are other people's jobs."""
    code, out, err = inside(crowd_hal, "hal whoami --json")
    assert code == 0, err
    who: dict[str, Any] = json.loads(out)
    assert (who["user"], who["role"], who["queues"]) == ("alice", "user", ["default"])
    for command in (
        "hal api-token create x --role admin",
        "hal node cordon n1",
        "hal policy set fairshare.half_life=1d",
    ):
        code, out, err = inside(crowd_hal, command)
        assert code != 0, (command, out)
        assert "may not" in err + out


@pytest.mark.parametrize(
    "hide",
    [
        "unset HAL_STEP_TOKEN;",
        "export HAL_STEP_TOKEN=; unset HAL_ATTEMPT_TOKEN;",
        "env -i HAL_HOME=$HAL_HOME",
        "env -i HAL_HOME=$HAL_HOME setsid",
        "export HAL_STEP_TOKEN=halstep_x_y;",
        "unset HAL_STEP_TOKEN; export HAL_URL=unix://$(cat $HAL_HOME/run/socket-dir)/api.sock;",
    ],
)
def test_without_its_token_it_is_still_the_submitter(crowd_hal: LiveHal, hide: str) -> None:
    """The kernel names the process that connects, and that is the step's."""
    import sys

    code, out, err = inside(crowd_hal, f"{hide} {sys.executable} -m hal.cli.main whoami --json")
    assert code == 0, err
    assert (json.loads(out)["user"], json.loads(out)["role"]) == ("alice", "user")


def test_it_does_what_a_user_does(crowd_hal: LiveHal) -> None:
    """Submits in its own queue, looks at its own job, cancels what it submitted; not somebody else's."""
    other = crowd_hal.run("submit", "-u", "bob", "--hold", "--", "true", check=True).out.strip()
    script = f"""
    set -e
    id=$(hal submit --hold -- true)
    test "$(hal show $id --json | {{ read -r x; cat; }} | grep -c alice)" != 0
    hal show $HAL_JOB_ID > /dev/null
    hal cancel $id
    ! hal show {other}
    ! hal cancel {other}
    ! hal submit -u bob -- true
    """
    code, out, err = inside(crowd_hal, script)
    assert code == 0, out + err


def test_the_token_ends_with_its_job(crowd_hal: LiveHal) -> None:
    """What a job wrote away opens nothing afterwards, by socket and from outside; nor does a forged one, while it
    runs."""
    _, token, _ = inside(crowd_hal, "printf %s $HAL_STEP_TOKEN")
    (node,) = crowd_hal.home.node_names()
    ran = crowd_hal.run("whoami", HAL_STEP_TOKEN=token, HAL_NODE=node)
    assert ran.code != 0
    assert "has ended" in ran.err
    code, _, err = inside(crowd_hal, 'export HAL_STEP_TOKEN=$(echo $HAL_STEP_TOKEN | sed "s/.$/x/"); hal whoami', "bob")
    assert code != 0
    assert "wrong" in err
    assert token.split("_")[-1] not in crowd_hal.run("events", "--json").out
    assert token.split("_")[-1] not in crowd_hal.run("jobs", "-a", "--json").out


def test_a_hal_of_the_jobs_own_is_not_the_one_that_runs_it(crowd_hal: LiveHal) -> None:
    """With a home of its own, in which nothing was started, it is told that nothing runs there."""
    code, _, err = inside(crowd_hal, "export HAL_HOME=$(mktemp -d); export HAL_STEP_URL=https://192.0.2.1; hal jobs")
    assert code != 0
    assert "is not running" in err


def test_what_a_job_submits_does_not_carry_its_token(crowd_hal: LiveHal) -> None:
    """`--export-all` leaves HAL's own variables out."""
    code, out, err = inside(crowd_hal, "hal submit --export-all --hold -- true")
    assert code == 0, err
    shown = crowd_hal.run("show", out.strip(), "--json", check=True).out
    assert "halstep_" not in shown
    assert json.loads(shown)["user"] == "alice"


def test_a_hal_of_root_runs_each_step_as_its_user(own_hal: LiveHal) -> None:
    """(C1, attempt 42) Over the public socket, and by root for somebody else; whoever the node does not know is
    refused."""
    sockets = Path(tempfile.mkdtemp(dir="/run"))
    sockets.chmod(0o755)
    path = f"{sockets}/api.sock"
    with unix_users(2) as (alice, bob):
        (own_hal.root / "hal.toml").write_text(
            f'[access]\nsocket = "{path}"\nusers = ["*"]\noperators = ["{bob.name}"]\n'
        )
        own_hal.environment["HAL_RUN_AS_OWNER"] = "0"
        own_hal.up("--cpus", "2")

        def submits_as(user: str) -> str:
            with Client(find_address(url=f"unix://{path}")) as client:
                with pytest.raises(DeniedError) as denied:
                    client.submit(["id"], user=user)
                return denied.value.message

        def submits() -> str:
            with Client(find_address(url=f"unix://{path}")) as client:
                job = client.submit(["sh", "-c", "id -u; id -G; grep CapEff /proc/self/status"], cpus=1)
                job.wait()
                return job.logs()

        try:
            for who in (alice, bob):
                uid, groups, capabilities = as_user(who.uid, submits).splitlines()
                assert (int(uid), capabilities.split()[1]) == (who.uid, "0" * 16)
                assert {int(one) for one in groups.split()} == {who.gid, who.group}
            for name in ("root", alice.name):  # an operator is nobody else by saying so
                assert f"'{name}' runs no jobs for you" in as_user(bob.uid, lambda name=name: submits_as(name))
            assert own_hal.run("run", "-u", alice.name, "--", "id", "-u").out == f"{alice.uid}\n"
            assert own_hal.run("run", "--", "id", "-u").out == "0\n"
            assert "steps run as" not in own_hal.run("status", check=True).out
            unknown = own_hal.run("submit", "-u", "hal-nobody-knows", "--", "true", check=True).out.strip()
            told = "its user cannot run on n1 (attempt 1): this node has no account of user 'hal-nobody-knows'"
            until(lambda: told in own_hal.run("why", unknown).out, "the refusal is explained")
        finally:
            shutil.rmtree(sockets)


def test_root_may_lend_its_account_and_is_warned(own_hal: LiveHal) -> None:
    """By a setting of the site; who gets the account is said wherever HAL's state is shown."""
    (own_hal.root / "hal.toml").write_text("[access]\nrun_as_owner = true\n")
    own_hal.environment["HAL_RUN_AS_OWNER"] = "0"
    own_hal.up("--cpus", "2")
    assert own_hal.run("run", "-u", "alice", "--", "id", "-u").out == "0\n"
    assert "steps run as root: every user who may submit gets that account" in own_hal.run("status", check=True).out


def test_the_former_setting_is_an_error_that_names_the_new_one(own_hal: LiveHal) -> None:
    """It said that whoever may submit is root: nobody must take the new default for it, or fear it still holds."""
    (own_hal.root / "hal.toml").write_text("[access]\nsteps_run_as_root = true\n")
    ran = own_hal.run("up", "--cpus", "2")
    assert ran.code != 0
    assert "access.steps_run_as_root" in ran.err
    assert "run_as_owner = true" in ran.err
    (own_hal.root / "hal.toml").unlink()
    ran = own_hal.run("up", "--cpus", "2", HAL_STEPS_RUN_AS_ROOT="1")
    assert "HAL_RUN_AS_OWNER=1" in ran.err
