"""Files of jobs on a HAL of root: nobody gets at another user's, and hostile bundles write nothing elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hal.client.address_lookup import find_address
from hal.client.rest import file_calls
from hal.client.rest.access_calls import create_token
from hal.client.sync_client import Client
from hal.core.model import HALError, NotFoundError, SpecError
from hal.core.model.bundle import Entry, EntryKind, Manifest, Segment, encode_manifest
from tests.attacks.other_user import as_user
from tests.attacks.test_terminals import free_port
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, new_home, until
from tests.unix_users import UnixUser, unix_users

SECRET = b"the plan of alice\n"


class Site(NamedTuple):
    """A HAL of root, and two users with tokens."""

    hal: LiveHal
    alice: UnixUser
    bob: UnixUser

    def client(self, user: UnixUser) -> Client:
        """As that user, with a token."""
        with self.hal.client() as owner:
            made = owner.call(create_token({"user": user.name, "role": "user"}))
        served = self.hal.home.served_tcp()
        assert served is not None
        return Client(find_address(url=f"http://{served[0]}:{served[1]}", token=made.secret, plain=True))

    def base(self) -> Path:
        """The directory of the steps' directories."""
        passage = self.hal.home.known_passage()
        assert passage is not None
        return passage / "work-n1"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    live = LiveHal(new_home())
    live.environment["HAL_RUN_AS_OWNER"] = "0"
    with unix_users(2) as (alice, bob):
        try:
            yield Site(live.up("--cpus", "8", "--tcp", str(free_port())), alice, bob)
        finally:
            live.remove()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "place"
    path.mkdir()
    (path / "plan").write_bytes(SECRET)
    return path


def test_a_step_has_its_files_as_its_user_and_no_more_rights(site: Site, place: Path) -> None:
    with site.client(site.alice) as alice:
        job = alice.submit("stat -c '%u %g %a' . plan; id -u", ship=place)
        job.wait(DEADLINE_S, check=True)
        uid, gid = site.alice.uid, site.alice.gid
        assert job.logs().splitlines() == [f"{uid} {gid} 700", f"{uid} {gid} 644", str(uid)]


def test_another_user_gets_to_no_directory_and_to_no_cache(site: Site, place: Path, tmp_path: Path) -> None:
    gate_place = Path(f"/var/tmp/hal-gate-{os.getpid()}")
    gate_place.mkdir(mode=0o777)
    gate_place.chmod(0o777)
    try:
        gate = Gate(gate_place)
        for fifo in gate_place.iterdir():
            fifo.chmod(0o666)
        with site.client(site.alice) as alice:
            job = alice.submit(gate.command(), ship=place)
            directory = site.base() / gate.started()
            assert (directory / "plan").read_bytes() == SECRET

            places = (directory, directory / "plan", site.base(), site.hal.root / "nodes" / "n1" / "files")

            def try_all() -> list[str]:
                opened = []
                for path in places:
                    try:
                        os.listdir(path) if path.name != "plan" else path.read_bytes()
                        opened.append(str(path))
                    except OSError:
                        pass
                return opened

            assert as_user(site.bob.uid, try_all) == []
            gate.open()
            job.wait(DEADLINE_S, check=True)
            gate.close()
    finally:
        for fifo in gate_place.iterdir():
            fifo.unlink()
        gate_place.rmdir()


def test_the_name_of_a_bundle_is_no_key(site: Site, place: Path) -> None:
    with site.client(site.alice) as alice, site.client(site.bob) as bob:
        job = alice.submit(["true"], ship=place)
        name = str((job.refresh().spec or {})["ship"])
        with pytest.raises(NotFoundError):
            bob.submit(["cat", "plan"], ship=name)
        digest = hashlib.sha256(SECRET).hexdigest()
        manifest = Manifest(
            entries=(Entry("plan", EntryKind.FILE, len(SECRET)),), segments=(Segment(digest, len(SECRET)),)
        )
        assert bob.call(file_calls.offer_bundle(encode_manifest(manifest))).missing == (0,)
        job.wait(DEADLINE_S, check=True)


def test_what_was_collected_is_of_the_jobs_owner(site: Site, place: Path, tmp_path: Path) -> None:
    with site.client(site.alice) as alice, site.client(site.bob) as bob:
        job = alice.submit(["true"], ship=place, collect=["plan"])
        job.wait(DEADLINE_S, check=True)
        assert [path.read_bytes() for path in job.fetch(tmp_path / "got")] == [SECRET]
        with pytest.raises(NotFoundError):
            bob.call(file_calls.collected(job.id))


@pytest.mark.parametrize("path", ["/etc/hal-attack", "../hal-attack", "a/../../hal-attack"])
def test_a_hostile_manifest_is_refused_before_anything_is_written(site: Site, path: str) -> None:
    manifest = Manifest(entries=(Entry(path, EntryKind.DIRECTORY),))
    with site.client(site.bob) as bob, pytest.raises(SpecError):
        bob.call(file_calls.offer_bundle(encode_manifest(manifest)))


def test_links_of_a_bundle_lead_the_collector_nowhere(site: Site, tmp_path: Path) -> None:
    """The collector is the user, follows no link, and packs plain files only."""
    secret = site.hal.root / "hal-attack"
    secret.write_text("of root")
    script = f"ln -s {site.hal.root} home; ln -s /etc/shadow shadow; mkfifo fifo; ln -s . loop; echo mine > mine"
    with site.client(site.bob) as bob:
        job = bob.submit(script, collect=["**"])
        job.wait(DEADLINE_S, check=True)
        assert [path.name for path in job.fetch(tmp_path / "got")] == ["mine"]


def test_a_tree_that_cannot_be_removed_by_its_owner_is_removed(site: Site) -> None:
    """Deep, closed to its owner, with a link to what must stay."""
    keep = Path(f"/var/tmp/hal-keep-{os.getpid()}")
    keep.write_text("stays")
    try:
        script = f"for n in $(seq 300); do mkdir d && cd d; done; ln -s {keep} link; cd /; true"
        with site.client(site.bob) as bob:
            job = bob.submit(f"mkdir closed; chmod 0 closed; {script}", collect=["nothing"])
            job.wait(DEADLINE_S, check=True)
        private = site.hal.root / "nodes" / "n1" / "files" / "private"
        until(lambda: not list(private.glob("*/closed")), "it is left")
        assert keep.read_text() == "stays"
    finally:
        keep.unlink()


def test_a_name_on_the_way_of_a_step_is_not_written_through(site: Site, place: Path) -> None:
    """A user has no way to put something in the place of a directory to come."""

    with site.client(site.alice) as alice:
        alice.submit(["true"], ship=place).wait(DEADLINE_S, check=True)
    base = site.base()

    def plant() -> str:
        try:
            os.symlink("/etc", base / "1.0.1.0")
        except OSError as error:
            return type(error).__name__
        return "planted"

    assert as_user(site.bob.uid, plant) == "PermissionError"


def test_an_operator_does_not_submit_with_anothers_files(site: Site, place: Path) -> None:
    with site.client(site.alice) as alice:
        job = alice.submit(["true"], ship=place)
        name = str((job.refresh().spec or {})["ship"])
        job.wait(DEADLINE_S)
    with site.hal.client() as root, pytest.raises(HALError):
        root.submit(["cat", "plan"], ship=name, user=site.alice.name)
