"""What runs in a user's job on a HAL of root: that user to the machine and to HAL, and nobody else to either."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pytest

from hal.client.address_lookup import find_address
from hal.client.rest import access_calls
from hal.client.sync_client import Client
from hal.core.model import DeniedError, HALError
from hal.daemons.agent.keeper.sandbox_probe import find_sandbox
from hal.runtime.identity import ProcessIdentity, kill
from hal.runtime.identity import running as running_process
from tests.attacks.other_user import as_user
from tests.attacks.test_terminals import free_port
from tests.e2e.conftest import LiveHal, new_home, until
from tests.unix_users import UnixUser, unix_users

T = TypeVar("T")
needs_sandbox = pytest.mark.skipif(not find_sandbox(), reason="no sandbox here: apt-get install bubblewrap")
ASK = """
import http.client, os, socket, sys
connection = http.client.HTTPConnection("hal")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(os.environ["HAL_STEP_SOCKET"])
token = os.environ.get("HAL_STEP_TOKEN")
connection.request("GET", "/v1/whoami", headers={"Authorization": f"Bearer {token}"} if token else {})
print(connection.getresponse().read().decode())
"""


class Running(NamedTuple):
    """A job of a user's whose step runs."""

    id: str
    env: dict[str, str]
    """Of its step."""


class Site(NamedTuple):
    """A HAL of root, and users of the machine to whom it gives no access but by their jobs."""

    hal: LiveHal
    alice: UnixUser
    bob: UnixUser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    live = LiveHal(new_home())
    live.environment["HAL_RUN_AS_OWNER"] = "0"
    with unix_users(2) as (alice, bob):
        try:
            yield Site(live.up("--cpus", "8", "--tcp", str(free_port())), alice, bob)
        finally:
            live.remove()


def running(site: Site, user: UnixUser, script: str = "") -> Running:
    """Start a job of that user's that goes on, after a script."""
    with site.hal.client() as client:
        job = client.submit(["sh", "-c", f"{script}\nenv -0; exec sleep 600"], user=user.name)
        until(lambda: "HAL_STEP_TOKEN=" in job.logs() and job.logs().endswith("\0"), "it began")
        return Running(str(job.id), dict(one.split("=", 1) for one in job.logs().split("\0") if "=" in one))


def as_step(user: UnixUser, env: dict[str, str], ask: Callable[[Client], T]) -> T:
    """What a client of that user's is answered that has the variables of a step."""

    def act() -> T:
        os.environ.clear()
        os.environ.update(env)
        with Client(find_address()) as client:
            return ask(client)

    return as_user(user.uid, act)


def refused(ask: Callable[[], object]) -> str:
    """The kind of error with which that is refused."""
    try:
        ask()
    except HALError as error:
        return type(error).__name__
    return "done"


def whoami(client: Client) -> tuple[str, str]:
    """Who asks, to HAL."""
    who = client.call(access_calls.who_am_i())
    return who.user, str(who.role)


def test_a_client_in_a_job_is_its_user_with_the_role_user(site: Site) -> None:
    """Over a socket that its user may reach, though everything else of HAL is closed; it submits, sees and cancels."""
    job = running(site, site.alice)

    def ask(client: Client) -> list[object]:
        child = client.submit(["true"], hold=True)
        seen = [str(one.id) for one in client.jobs()]
        child.cancel()
        return [whoami(client), str(child.id) in seen, refused(lambda: client.cordon("n1"))]

    assert as_step(site.alice, job.env, ask) == [(site.alice.name, "user"), True, "DeniedError"]


def test_a_token_in_other_hands_speaks_for_its_job_alone(site: Site) -> None:
    """Another user who has it, and whoever shows it over TCP: not the user's other jobs, no list, nothing of HAL's; but
    what that job submits."""
    job, other = running(site, site.alice), running(site, site.alice)
    url = f"http://{(site.hal.root / 'run' / 'rest-tcp').read_text().strip()}"

    def ask(client: Client) -> list[object]:
        child = client.submit(["true"], hold=True)
        return [
            str(client.job(job.id).refresh().id),
            str(child.refresh().id) == str(child.id),
            refused(lambda: client.job(other.id).refresh()),
            refused(lambda: client.job(other.id).cancel()),
            refused(lambda: client.job(other.id).logs()),
            refused(lambda: client.submit(["true"], after=other.id)),
            refused(lambda: list(client.jobs())),
            refused(client.wants),
            refused(lambda: client.call(access_calls.tokens())),
        ]

    def over_tcp() -> list[object]:
        os.environ["HOME"] = str(site.bob.home)
        with Client(find_address(url=url, token=job.env["HAL_STEP_TOKEN"], plain=True)) as client:
            return ask(client)

    told = [job.id, True, *["NotFoundError"] * 3, "SpecError", *["DeniedError"] * 3]
    assert as_step(site.bob, job.env, ask) == told
    assert as_user(site.bob.uid, over_tcp) == told


def test_nobody_but_steps_has_a_role_at_their_socket(site: Site) -> None:
    """A user of the machine without a token, and one whose variables claim to be of another's step."""
    job = running(site, site.alice)
    claims = f"export HAL_ATTEMPT_TOKEN={job.env['HAL_ATTEMPT_TOKEN']}; unset HAL_STEP_TOKEN"
    assert "has no role" in running_text(site, site.bob, f"{claims}; /usr/bin/python3 -c '{ASK}'")
    outside = {"HAL_STEP_SOCKET": job.env["HAL_STEP_SOCKET"], "HAL_URL": f"unix://{job.env['HAL_STEP_SOCKET']}"}
    assert as_step(site.bob, outside, lambda client: refused(lambda: list(client.jobs()))) == "DeniedError"


def test_the_token_of_an_ended_step_opens_nothing(site: Site) -> None:
    """Not even for its own user."""
    job = running(site, site.alice)
    with site.hal.client() as client:
        client.job(job.id).cancel()
        client.job(job.id).wait()

    def ask(client: Client) -> str:
        with pytest.raises(DeniedError) as denied:
            whoami(client)
        return denied.value.message

    assert "has ended, and its rights with it" in as_step(site.alice, job.env, ask)


def test_no_file_of_hal_is_open_to_a_step(site: Site) -> None:
    """Its home, what other homes of HAL's have beside it, and what is in the directory for steps that is not theirs."""
    job = running(site, site.alice)
    home, passage = site.hal.root, os.path.dirname(job.env["HAL_STEP_SOCKET"])
    script = f"ls {home} || echo no; cat {home}/db/hal.sqlite || echo no; ls {passage} || echo no; rm -r {passage}"
    assert running_text(site, site.bob, f"({script}) 2>/dev/null; id -u").split() == ["no"] * 3 + [str(site.bob.uid)]


def running_text(site: Site, user: UnixUser, script: str) -> str:
    """What a job of that user's writes that ends."""
    with site.hal.client() as client:
        job = client.submit(["sh", "-c", script], user=user.name)
        job.wait()
        return job.logs()


def as_client(site: Site, user: UnixUser) -> dict[str, str]:
    """Variables with which `hal` is that user to HAL, with a token of theirs."""
    made = site.hal.run("api-token", "create", user.name, "--json", check=True)
    url = f"http://{(site.hal.root / 'run' / 'rest-tcp').read_text().strip()}"
    return {"HAL_URL": url, "HAL_TOKEN": json.loads(made.out)["secret"]}


@pytest.mark.parametrize("sandbox", ["no", pytest.param("yes,no-network", marks=needs_sandbox)])
def test_a_secret_is_a_file_of_its_users_step_alone(site: Site, sandbox: str) -> None:
    """While the step runs another user's step cannot read it, or see it; afterwards it is gone. Also in a sandbox."""
    value = f"{sandbox} battery staple"
    client = as_client(site, site.alice)
    site.hal.run("secret", "set", "db", text=value, check=True, **client)
    script = (
        "cat $HAL_SECRETS_DIR/db; echo; echo $HAL_SECRETS_DIR; (echo >$HAL_SECRETS_DIR/x) 2>/dev/null || echo closed"
    )
    options = ("--secret", "db", "--sandbox", sandbox, "-C", site.alice.home)
    job = site.hal.run("submit", *options, "--", "sh", "-c", f"{script}; sleep 600", check=True, **client).out.strip()
    until(lambda: "closed" in site.hal.run("logs", job, **client).out, "it has read it")
    read, directory, closed = site.hal.run("logs", job, **client).out.splitlines()
    assert (read, closed) == (value, "closed")
    stolen = f"cat {directory}/db; ls {directory}; ls {os.path.dirname(directory)}; grep -rs 'battery' /run /dev/shm"
    assert running_text(site, site.bob, f"({stolen}) 2>/dev/null; echo nothing") == "nothing\n"
    site.hal.run("cancel", job, check=True, **client)
    until(lambda: not os.path.exists(f"{directory}/db"), "it is gone")


@needs_sandbox
def test_a_sandboxed_step_of_a_user_is_that_user_and_reaches_hal(site: Site) -> None:
    """The sandbox is made by a process without any rights but the user's."""
    script = f"id -u; touch {site.alice.home}/x 2>/dev/null || echo closed; /usr/bin/python3 -c '{ASK}'"
    with site.hal.client() as client:
        job = client.submit(["sh", "-c", script], user=site.alice.name, sandbox="yes", workdir="/var")
        assert job.wait().exit_code == 0, job.logs("stderr")
        uid, closed, who = job.logs().splitlines()
    assert (int(uid), closed, json.loads(who)["user"]) == (site.alice.uid, "closed", site.alice.name)


def watchers(site: Site) -> list[ProcessIdentity]:
    """The processes over alice's steps: her helper, and root's recorder above it."""
    found = []
    for path in site.hal.home.node("n1").journal.glob("helper-*.log"):
        words = path.read_text().split(maxsplit=8)
        if words[7] == str(site.alice.uid):
            found += [ProcessIdentity(int(words[at]), int(words[at + 1])) for at in (1, 5)]
    return found


@pytest.mark.parametrize("victim", ["controller", "agent-n1", "keeper-n1", "helper and recorder"])
def test_whoever_dies_a_step_stays_its_users_and_its_secret_goes(site: Site, victim: str) -> None:
    """Killed while the step runs: every process of the step is its user's before and afterwards."""
    client = as_client(site, site.alice)
    site.hal.run("secret", "set", "db", text="staple", check=True, **client)
    script = "echo $HAL_SECRETS_DIR; while sleep 0.05; do id -u >>uids; done"
    options = ("--secret", "db", "-C", site.alice.home)
    job = site.hal.run("submit", *options, "--", "sh", "-c", script, check=True, **client).out.strip()
    until(lambda: site.hal.run("logs", job, **client).out, "it has begun")
    directory = site.hal.run("logs", job, **client).out.strip()
    daemon = running_process(site.hal.home.pid_file(victim))
    killed = [daemon] if daemon is not None else watchers(site)
    assert killed
    for one in killed:
        kill(one, signal.SIGKILL)
    site.hal.up()
    until(lambda: site.hal.run("nodes").out.count(" up "), "the node is back")
    site.hal.run("cancel", job, check=True, **client)
    until(lambda: "cancelled" in site.hal.run("show", job, **client).out, "it has ended")
    assert set((site.alice.home / "uids").read_text().split()) == {str(site.alice.uid)}
    until(lambda: not os.path.exists(f"{directory}/db"), "its secret is gone")
