"""The store on a real disk: full disks, other users, planted files, bounds, two versions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hal.blobs import BlobDamagedError, BlobDiskFullError, Blobs, BlobStoreFullError, open_blobs
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.core.interfaces.directory import DirectoryEntry
from hal.core.model.errors import ConflictError, DeniedError, NotFoundError, SpecError, StoreError
from hal.runtime.interface import Lane, Runtime
from hal.runtime.real_directory import open_private_directory
from hal.runtime.virtual_directory import Holder, VirtualDisk
from hal.runtime.virtual_world import VirtualWorld
from tests.blobs.places import MIB, VirtualPlace, opened
from tests.runtime.real_runtime import run_real


def on_disk(root: Path) -> Blobs:
    return opened(open_private_directory(root))


def file_of(root: Path, blob: str) -> Path:
    return root / "chunks" / blob.partition(":")[2]


# ── a full disk ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [100, CHUNK_BYTES, 2 * CHUNK_BYTES])
def test_a_full_disk_is_one_error_and_nothing_is_left(size: int) -> None:
    """The blob that fitted before is there, the one that did not is not, and it fits once there is room."""
    disk = VirtualDisk(capacity_bytes=200)
    store = opened(disk.open("/blobs", Holder()))
    small = store.put(b"small")
    disk.capacity_bytes = disk.used_bytes + size - 50
    before = store.usage(), disk.used_bytes
    with pytest.raises(BlobDiskFullError, match="nothing more can be stored in /blobs: No space left"):
        store.put(os.urandom(size))
    after = store.usage(), disk.used_bytes
    assert (after == before) or size > CHUNK_BYTES  # whole chunks of the longer one stay, until they are evicted
    disk.capacity_bytes *= 4
    assert store.read(small) == b"small"
    assert store.verify(store.put(os.urandom(size))).size_bytes == size


def test_a_real_limit_on_files_is_the_same_error(tmp_path: Path) -> None:
    """The kernel refuses to let a file grow, as with a quota."""
    code = """if True:
        import resource, signal, sys
        from pathlib import Path
        from hal.blobs import BlobDiskFullError, open_blobs
        from hal.runtime.real_directory import open_private_directory
        store = open_blobs(open_private_directory(Path(sys.argv[1])), "p", max_bytes=1 << 30, max_files=100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            store.put(bytes(2000))
        except BlobDiskFullError as error:
            print(error.message, store.usage().files)
    """
    root = tmp_path / "blobs"
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout == f"nothing more can be stored in {root}: File too large 0\n"
    assert list((root / "staging").iterdir()) == []


def test_what_does_not_fit_beside_pinned_blobs_leaves_nothing() -> None:
    """Neither a file nor a lease."""
    place = VirtualPlace()
    store = place.open(max_bytes=2 * CHUNK_BYTES, max_files=16, fresh=True)
    store.pin(store.put(os.urandom(CHUNK_BYTES)), "job-7")
    for size in (CHUNK_BYTES + 1, 2 * CHUNK_BYTES):
        with pytest.raises(BlobStoreFullError, match=r"neither pinned nor in use"):
            store.put(os.urandom(size))
        store.evict(0)
    assert place.leftovers() == []


def test_a_lease_that_ends_during_an_eviction_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader removes its lease without the store's lock: it may be listed, and gone when it is read."""
    store = VirtualPlace().open(max_bytes=100 * MIB, max_files=100, fresh=True)
    store.put(b"data")
    leases = store._layout.leases
    listed = [*leases.entries(), DirectoryEntry("reader-1", 32, 0)]
    monkeypatch.setattr(leases, "entries", lambda: listed)
    monkeypatch.setattr("hal.blobs.occupancy.forget_dead_instances", lambda layout: None)
    assert store.evict(0).files == 1


# ── who else is there ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_of_a_store_are_private(tmp_path: Path) -> None:
    """Whatever the umask."""
    former = os.umask(0)
    try:
        store = on_disk(tmp_path / "blobs")
        store.pin(store.put(bytes(CHUNK_BYTES + 1)), "job-7")
    finally:
        os.umask(former)
    modes = {oct(path.stat().st_mode & 0o7777) for path in (tmp_path / "blobs").rglob("*")}
    assert modes == {"0o700", "0o600"}


def test_a_directory_that_others_may_use_is_refused(tmp_path: Path) -> None:
    """They could read blobs, or put links there."""
    (tmp_path / "blobs").mkdir(mode=0o755)
    with pytest.raises(DeniedError, match="can be used by others"):
        on_disk(tmp_path / "blobs")
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_link_in_place_of_the_store_is_refused(tmp_path: Path) -> None:
    """And nothing is created where it points to."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "blobs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeniedError, match="a symbolic link is in the place of the directory"):
        on_disk(tmp_path / "blobs")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_place_of_its_directory_is_refused(tmp_path: Path) -> None:
    """What it points to is neither listed nor evicted."""
    root = tmp_path / "blobs"
    on_disk(root).close()
    precious = tmp_path / "elsewhere" / ("0" * 64)
    precious.parent.mkdir(mode=0o700)
    precious.write_text("precious")
    (root / "chunks").rmdir()
    (root / "chunks").symlink_to(precious.parent)
    with pytest.raises(DeniedError, match="a symbolic link"):
        on_disk(root)
    assert precious.read_text() == "precious"


def test_a_fifo_in_place_of_a_chunk_blocks_nobody_and_is_replaced(tmp_path: Path) -> None:
    """A job of the same user put it there."""
    root = tmp_path / "blobs"
    store = on_disk(root)
    blob = store.put(b"data")
    file_of(root, blob).unlink()
    os.mkfifo(file_of(root, blob))
    with pytest.raises(StoreError, match="a FIFO is in the place of the file"):
        store.read(blob)
    assert store.find(blob) is None
    assert store.read(store.put(b"data")) == b"data"


def test_a_change_through_a_hard_link_is_noticed(tmp_path: Path) -> None:
    """A job of the same user links a chunk's file elsewhere, and writes to it."""
    root = tmp_path / "blobs"
    store = on_disk(root)
    blob = store.put(b"data")
    os.link(file_of(root, blob), tmp_path / "linked")
    (tmp_path / "linked").write_bytes(b"lies")
    with pytest.raises(BlobDamagedError, match="it was removed"):
        store.read(blob)
    assert store.read(store.put(b"data")) == b"data"
    assert (tmp_path / "linked").read_bytes() == b"lies"


def test_files_that_are_not_the_stores_stay(tmp_path: Path) -> None:
    """They are neither counted nor evicted."""
    root = tmp_path / "blobs"
    store = on_disk(root)
    (root / "chunks" / "notes.txt").write_text("mine")
    store.put(b"data")
    assert store.evict(0).files == 1
    assert store.usage().files == 0
    assert (root / "chunks" / "notes.txt").read_text() == "mine"


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_of_another_version_is_refused_and_not_changed(tmp_path: Path) -> None:
    """What it holds may mean something else."""
    root = tmp_path / "blobs"
    root.mkdir(mode=0o700)
    (root / "format").write_bytes(b"hal blobs 9\n")
    (root / "format").chmod(0o600)
    with pytest.raises(ConflictError, match="not a blob store of this version"):
        on_disk(root)
    assert sorted(path.name for path in root.iterdir()) == ["format", "lock"]


@pytest.mark.parametrize(
    ("max_bytes", "max_files", "name"), [(MIB, 100, "p"), (100 * MIB, 3, "p"), (100 * MIB, 100, "a/b")]
)
def test_bounds_that_hold_nothing_are_refused(tmp_path: Path, max_bytes: int, max_files: int, name: str) -> None:
    """Two chunks and sixteen files are the least; a name is letters and digits."""
    with pytest.raises(SpecError):
        open_blobs(open_private_directory(tmp_path / "blobs"), name, max_bytes=max_bytes, max_files=max_files)


def test_wrong_counts_are_mended_when_a_store_is_opened(tmp_path: Path) -> None:
    """A torn file of counts means that they are counted again."""
    root = tmp_path / "blobs"
    on_disk(root).put(b"data")
    (root / "usage").write_bytes(b"torn")
    assert on_disk(root).usage()[:3] == (4, 1, 0)


def test_a_store_without_its_parent_is_not_found(tmp_path: Path) -> None:
    """One clear error."""
    with pytest.raises(NotFoundError, match="does not exist"):
        on_disk(tmp_path / "none" / "blobs")


# ── in a runtime ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def use(runtime: Runtime) -> bytes:
    """A daemon makes blocking calls on a lane."""
    directory = await runtime.run_blocking(lambda: runtime.open_directory(runtime.paths.root / "blobs"))
    store = await runtime.run_blocking(
        lambda: open_blobs(directory, runtime.new_id(), max_bytes=100 * MIB, max_files=100)
    )
    name = await runtime.run_blocking(lambda: store.put(b"data"), Lane.WRITER)
    return await runtime.run_blocking(lambda: store.read(name), Lane.READER)


def test_a_store_works_in_the_real_runtime(tmp_path: Path) -> None:
    """On the lanes of its threads."""
    assert run_real(tmp_path, use) == b"data"


def test_a_virtual_process_that_dies_frees_what_it_was_writing() -> None:
    """The next process on its host finds the store; another host has another disk."""
    with VirtualWorld(seed=3) as world:
        host = world.host("n1")
        found: list[int] = []

        async def hold(runtime: Runtime) -> None:
            store = open_blobs(runtime.open_directory(Path("/blobs")), "a", max_bytes=100 * MIB, max_files=100)
            store.writer().write(bytes(2 * CHUNK_BYTES))
            await runtime.stopping.wait()

        async def look(runtime: Runtime) -> None:
            store = open_blobs(runtime.open_directory(Path("/blobs")), "b", max_bytes=100 * MIB, max_files=100)
            found.append(store.evict(0).files)

        async def drive() -> None:
            holder = world.start(host, "hold", hold)
            await asyncio.sleep(1)
            await world.start(host, "look", look).wait()
            holder.kill()
            await world.start(host, "look", look).wait()
            await world.start(world.host("n2"), "look", look).wait()

        world.run(drive())
    assert found == [0, 1, 0]
