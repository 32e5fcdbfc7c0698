"""The contract of a blob store, as checks for the authors of another implementation: `check_blobs(place)`.

Each check opens a new, empty store through the `BlobPlace` that it is given and raises `NonConformance` at the first
answer that breaks the contract of `hal.core.interfaces.blobs`. `BlobWalk` is a model beside a store: whoever draws its
steps (a seeded walk here, a state machine of Hypothesis in the tests of HAL) has every answer checked.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from hal.conformance.answers import NonConformance
from hal.core.interfaces.blobs import CHUNK_BYTES, MAX_READ_BYTES, BlobStore
from hal.core.model.errors import HALError, NotFoundError, OverloadedError, SpecError

T = TypeVar("T")

ROOMY_BYTES: Final = 1 << 30
ROOMY_FILES: Final = 10_000
SMALL_BYTES: Final = 3 * CHUNK_BYTES
SMALL_FILES: Final = 16
WALK_STEPS: Final = 60
HOLDERS: Final = ("job-7", "job-8")


class BlobPlace(Protocol):
    """Where the checks find stores: implemented by the author of one."""

    def open(self, *, max_bytes: int, max_files: int, fresh: bool) -> BlobStore:
        """Open a store with these bounds.

        Args:
            fresh: at a new, empty place; otherwise the one that was opened last, as another process would.
        """

    def damage(self, digest: str) -> None:
        """Change a byte of the stored chunk or manifest with this SHA-256, behind the store's back."""


def check_blobs(place: BlobPlace, *, seed: int = 0) -> None:
    """Run every check.

    Raises:
        NonConformance: the store breaks the contract.
    """
    for check in CHECKS:
        check(place)
    walk = BlobWalk(place.open(max_bytes=SMALL_BYTES, max_files=SMALL_FILES, fresh=True))
    rng = random.Random(seed)
    for _ in range(WALK_STEPS):
        walk.step(rng.choice(BlobWalk.STEPS), rng.randrange(1 << 16), rng.choice(HOLDERS))


# ── single clauses ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_names(place: BlobPlace) -> None:
    """A blob of one chunk is named by the SHA-256 of its bytes, a longer one by that of its manifest."""
    store = _roomy(place)
    for size in (0, 1, CHUNK_BYTES):
        data = _bytes(size)
        _equal(f"put() of {size} bytes", store.put(data), f"sha256:{_sha(data)}")
    data = _bytes(2 * CHUNK_BYTES + 1)
    name = store.put(data)
    manifest = store.manifest(name)
    _equal("put() of more than a chunk", name, f"chunks:{_sha(manifest)}")
    digests = b"".join(bytes.fromhex(_sha(data[at : at + CHUNK_BYTES])) for at in range(0, len(data), CHUNK_BYTES))
    _equal("manifest()", manifest, b"hal chunks 1\n" + len(data).to_bytes(8, "little") + digests)


def check_pieces(place: BlobPlace) -> None:
    """A blob's name does not depend on the pieces in which it was written."""
    store = _roomy(place)
    data = _bytes(CHUNK_BYTES + 100)
    names = set()
    for piece in (1 << 20, CHUNK_BYTES, len(data)):
        with store.writer() as writer:
            for at in range(0, len(data), piece):
                writer.write(data[at : at + piece])
            names.add(writer.commit())
    _equal("names of one blob written in different pieces", names, {store.put(data)})


def check_reading(place: BlobPlace) -> None:
    """Any part of a blob reads as it was written."""
    store = _roomy(place)
    for size in (0, 10, 2 * CHUNK_BYTES + 10):
        data = _bytes(size)
        name = store.put(data)
        info = store.find(name)
        _equal(f"find() of {size} bytes", None if info is None else info.size_bytes, size)
        for offset, length in ((0, None), (0, 5), (3, 4), (size, 1), (CHUNK_BYTES - 2, 4), (size + 7, None)):
            expected = data[offset:] if length is None else data[offset : offset + length]
            _equal(f"read({offset}, {length}) of {size} bytes", store.read(name, offset, length), expected)
        _equal(f"chunks() of {size} bytes", b"".join(store.chunks(name)), data)
        _equal(f"verify() of {size} bytes", store.verify(name).size_bytes, size)
    _refused("read() of more than its bound", lambda: _long_read(store), SpecError)
    _refused("read() from before the beginning", lambda: store.read(store.put(b"abc"), -1), SpecError)


def check_sharing(place: BlobPlace) -> None:
    """Equal chunks are stored once."""
    store = _roomy(place)
    data = _bytes(CHUNK_BYTES)
    store.put(data + data + b"x")
    store.put(data)
    manifest_bytes = len(store.manifest(store.put(data + data + b"x")))
    usage = store.usage()
    _equal("files of a repeated chunk", usage.files, 3)
    _equal("bytes of a repeated chunk", usage.size_bytes, len(data) + 1 + manifest_bytes)


def check_missing(place: BlobPlace) -> None:
    """What is not there is a NotFoundError, and what is no name a SpecError; neither changes anything."""
    store = _roomy(place)
    for name in (f"sha256:{_sha(b'nothing')}", f"chunks:{_sha(b'nothing')}"):
        _equal("find() of a missing blob", store.find(name), None)
        _refused("read() of a missing blob", partial(store.read, name), NotFoundError)
        _refused("chunks() of a missing blob", partial(_read_all, store, name), NotFoundError)
        _refused("pin() of a missing blob", partial(store.pin, name, "job-7"), NotFoundError)
    for name in ("", "sha256:", "../../etc/passwd", f"sha256:{'A' * 64}", f"md5:{'0' * 64}", f"sha256:{'0' * 63}"):
        _refused(f"read() of '{name}'", partial(store.read, name), SpecError)
    good = store.put(b"abc")
    for holder in ("", "a/b", ".hidden", "x" * 65, "a b"):
        _refused(f"pin() by '{holder}'", partial(store.pin, good, holder), SpecError)
    _equal("pins after refusals", store.pins(), [])
    _equal("files after refusals", store.usage().files, 1)


def check_giving_up(place: BlobPlace) -> None:
    """A writer that is not committed leaves no blob, and cannot be used again."""
    store = _roomy(place)
    data = _bytes(CHUNK_BYTES + 1)
    with suppress(ZeroDivisionError), store.writer() as writer:
        writer.write(data)
        raise ZeroDivisionError
    _refused("write() after giving up", lambda: writer.write(b"more"), HALError)
    _refused("commit() after giving up", writer.commit, HALError)
    whole = store.put(data)
    _equal("the blob written again", store.read(whole), data)


def check_pins_of_several(place: BlobPlace) -> None:
    """Several blobs are pinned in one step, all or none; what is pinned already stays so."""
    store = _roomy(place)
    names = [store.put(_bytes(100, seed=seed)) for seed in range(3)]
    missing = f"sha256:{_sha(b'nothing')}"
    wrongs: list[tuple[list[str], type[HALError]]] = [
        ([*names, missing], NotFoundError),
        ([*names, "no name"], SpecError),
    ]
    for wrong, error in wrongs:
        _refused("pin_all() with a wrong name", partial(store.pin_all, wrong, "job-7"), error)
        _equal("pins after a refused pin_all()", store.pins(), [])
    store.pin(names[1], "job-7")
    store.pin_all([*names, names[0]], "job-7")
    store.pin_all([], "job-8")
    _equal("pins()", [tuple(pin) for pin in store.pins()], sorted(("job-7", name) for name in names))
    _equal("usage().pins", store.usage().pins, len(names))


def check_pins(place: BlobPlace) -> None:
    """A pinned blob survives an eviction of everything; after the last pin is gone it does not."""
    store = _roomy(place)
    kept, long, other = store.put(b"kept"), store.put(_bytes(CHUNK_BYTES + 9)), store.put(b"other")
    for holder in HOLDERS:
        store.pin(kept, holder)
        store.pin(kept, holder)
    store.pin(long, HOLDERS[0])
    pins = sorted([(HOLDERS[0], kept), (HOLDERS[1], kept), (HOLDERS[0], long)])
    _equal("pins()", [tuple(pin) for pin in store.pins()], pins)
    store.evict(0)
    _equal("a pinned blob after evict()", store.read(kept), b"kept")
    _equal("a long pinned blob after evict()", store.verify(long).size_bytes, CHUNK_BYTES + 9)
    _equal("a blob that nobody pinned after evict()", store.find(other), None)
    _equal("unpin_all()", store.unpin_all(HOLDERS[0]), 2)
    again = place.open(max_bytes=ROOMY_BYTES, max_files=ROOMY_FILES, fresh=False)
    again.evict(0)
    _equal("a blob with a second pin, in another process", again.read(kept), b"kept")
    _equal("unpin()", (again.unpin(kept, HOLDERS[1]), again.unpin(kept, HOLDERS[1])), (True, False))
    _equal("evict() of the last file", again.evict(0).files, 1)
    _equal("usage() when all is evicted", tuple(again.usage())[:3], (0, 0, 0))


def check_order_of_eviction(place: BlobPlace) -> None:
    """The least recently used goes first; reading is using."""
    store = _roomy(place)
    names = [store.put(bytes([number]) * 1_000) for number in range(4)]
    store.read(names[0])
    store.evict(2_000)
    left = [number for number, name in enumerate(names) if store.find(name) is not None]
    _equal("blobs left after evict(): 0 was read last, 3 was written last", left, [0, 3])


def check_bounds(place: BlobPlace) -> None:
    """Neither bound is ever exceeded; what does not fit beside pinned blobs is refused, and nothing is evicted."""
    store = place.open(max_bytes=SMALL_BYTES, max_files=SMALL_FILES, fresh=True)
    for number in range(3 * SMALL_FILES):
        store.put(bytes([number]))
        _equal("files within the bound", store.usage().files <= SMALL_FILES, True)
    for number in range(6):
        store.put(_bytes(CHUNK_BYTES, seed=number))
        _equal("bytes within the bound", store.usage().size_bytes <= SMALL_BYTES, True)
    store.evict(0)
    pinned = store.put(_bytes(2 * CHUNK_BYTES))
    store.pin(pinned, "job-7")
    small = store.put(b"small")
    before = store.usage()
    _refused("put() beside pinned blobs", lambda: store.put(_bytes(CHUNK_BYTES, seed=9)), OverloadedError)
    _refused("a writer beside pinned blobs", lambda: store.put(_bytes(2 * CHUNK_BYTES, seed=9)), OverloadedError)
    _equal("usage() after a refusal", tuple(store.usage()), tuple(before))
    _equal("a blob that fitted before a refusal", store.read(small), b"small")


def check_writers_keep_their_chunks(place: BlobPlace) -> None:
    """Chunks of a blob that is being written or read are not evicted, by another process neither."""
    store = _roomy(place)
    data = _bytes(3 * CHUNK_BYTES)
    other = place.open(max_bytes=ROOMY_BYTES, max_files=ROOMY_FILES, fresh=False)
    with store.writer() as writer:
        writer.write(data)
        other.evict(0)
        name = writer.commit()
    _equal("a blob written during evict()", store.read(name), data)
    reading = store.chunks(name)
    first = next(reading)
    other.evict(0)
    _equal("a blob read during evict()", first + b"".join(reading), data)
    other.evict(0)
    _equal("a blob after its readers", store.find(name), None)


def check_damage(place: BlobPlace) -> None:
    """Damaged bytes are never returned: they are removed, and can be stored again."""
    store = _roomy(place)
    data = _bytes(CHUNK_BYTES + 5)
    name, small = store.put(data), store.put(b"small")
    place.damage(_sha(b"small"))
    _refused("read() of damaged bytes", lambda: store.read(small), NotFoundError)
    _equal("find() after damage was found", store.find(small), None)
    place.damage(_sha(data[:CHUNK_BYTES]))
    _refused("chunks() of a damaged blob", lambda: list(store.chunks(name)), NotFoundError)
    _equal("a damaged blob that was stored again", store.read(store.put(data)), data)
    place.damage(_sha(data[CHUNK_BYTES:]))
    _equal("put() over damaged bytes", store.read(store.put(data)), data)
    place.damage(name.partition(":")[2])
    _refused("read() with a damaged manifest", lambda: store.read(name), NotFoundError)


def check_scrubbing(place: BlobPlace) -> None:
    """A scrub in slices reads everything once, and removes what is damaged, pinned or not."""
    store = _roomy(place)
    names = [store.put(bytes([number]) * 10) for number in range(5)]
    store.pin(names[2], "job-7")
    damaged = [names[number].partition(":")[2] for number in (2, 4)]
    for digest in damaged:
        place.damage(digest)
    found: list[str] = []
    after, files = "", 0
    for _ in range(100):
        slice_ = store.scrub(after, 20)
        found += slice_.damaged
        after, files = slice_.after, files + slice_.files
        if not after:
            break
    _equal("damaged files found by scrub()", sorted(found), sorted(damaged))
    _equal("files read by scrub()", files, 5)
    _equal("files left after scrub()", store.usage().files, 3)


def check_assembling(place: BlobPlace) -> None:
    """Chunks and a manifest from one store make the same blob in another."""
    store = _roomy(place)
    data = _bytes(2 * CHUNK_BYTES + 3)
    name = store.put(data)
    manifest, chunks = store.manifest(name), list(store.chunks(name))
    other = _roomy(place)
    for chunk in chunks[:-1]:
        other.put(chunk)
    _refused("assemble() without the last chunk", lambda: other.assemble(manifest), NotFoundError)
    _equal("find() after a refused assemble()", other.find(name), None)
    other.put(chunks[-1])
    _equal("assemble()", other.assemble(manifest), name)
    _equal("an assembled blob", other.read(name), data)
    for wrong in (b"", manifest[:-1], manifest + b"x", b"x" + manifest[1:], manifest[:21]):
        _refused("assemble() of what is no manifest", partial(other.assemble, wrong), SpecError)


CHECKS: Final[Sequence[Callable[[BlobPlace], None]]] = (
    check_names,
    check_pieces,
    check_reading,
    check_sharing,
    check_missing,
    check_giving_up,
    check_pins,
    check_pins_of_several,
    check_order_of_eviction,
    check_bounds,
    check_writers_keep_their_chunks,
    check_damage,
    check_scrubbing,
    check_assembling,
)


# ── a model beside the store ──────────────────────────────────────────────────────────────────────────────────────────


class BlobWalk:
    """A store and a model of it. Blobs are chosen by number, so that they repeat."""

    STEPS: Final = ("put", "put_long", "read", "find", "pin", "unpin", "unpin_all", "evict", "scrub")

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._contents: dict[str, bytes] = {}
        """Every blob that was ever stored."""
        self._pinned: set[tuple[str, str]] = set()
        """Holder and blob."""

    def step(self, step: str, number: int, holder: str) -> None:
        """Take one step and check its answer and the invariants.

        Args:
            step: one of `STEPS`.
            number: chooses a blob, or an amount.
        Raises:
            NonConformance: the store did not do what the model did.
        """
        getattr(self, f"_{step}")(number, holder)
        self._check()

    def reopened(self, store: BlobStore) -> None:
        """Continue with the same store, opened again."""
        self._store = store
        self._check()

    def _put(self, number: int, holder: str) -> None:
        self._stored(bytes([number % 64]) * (number % 5_000))

    def _put_long(self, number: int, holder: str) -> None:
        shared = bytes([number % 3]) * CHUNK_BYTES
        self._stored(shared + bytes([number % 5]) * (1 + number % 1_000))

    def _stored(self, data: bytes) -> None:
        try:
            name = self._store.put(data)
        except OverloadedError:
            sizes = [len(self._contents[blob]) for blob in {blob for _, blob in self._pinned}]
            pinned, files = sum(sizes), sum(1 if size <= CHUNK_BYTES else 3 for size in sizes)
            if pinned + len(data) + 1_000 * len(sizes) < SMALL_BYTES and files + 3 <= SMALL_FILES:
                raise NonConformance(f"put() of {len(data)} bytes was refused beside {pinned} pinned bytes") from None
            return
        self._contents[name] = data
        _equal("a blob that was just stored", self._store.read(name), data)

    def _read(self, number: int, holder: str) -> None:
        for name in self._chosen(number):
            try:
                data = self._store.read(name)
            except NotFoundError:
                _equal(f"find() of {name}, which cannot be read", self._store.find(name), None)
            else:
                _equal(f"read() of {name}", data, self._contents[name])

    def _find(self, number: int, holder: str) -> None:
        for name in self._chosen(number):
            info = self._store.find(name)
            if info is not None:
                _equal(f"find() of {name}", info.size_bytes, len(self._contents[name]))

    def _pin(self, number: int, holder: str) -> None:
        for name in self._chosen(number):
            if self._store.find(name) is None:
                _refused("pin() of an evicted blob", partial(self._store.pin, name, holder), NotFoundError)
            else:
                self._store.pin(name, holder)
                self._pinned.add((holder, name))

    def _unpin(self, number: int, holder: str) -> None:
        for name in self._chosen(number):
            _equal(f"unpin() of {name}", self._store.unpin(name, holder), (holder, name) in self._pinned)
            self._pinned.discard((holder, name))

    def _unpin_all(self, number: int, holder: str) -> None:
        mine = {pin for pin in self._pinned if pin[0] == holder}
        _equal(f"unpin_all('{holder}')", self._store.unpin_all(holder), len(mine))
        self._pinned -= mine

    def _evict(self, number: int, holder: str) -> None:
        before = self._store.usage()
        evicted = self._store.evict(number * 100)
        after = self._store.usage()
        _equal("what evict() returned", evicted, (before.files - after.files, before.size_bytes - after.size_bytes))
        if not self._pinned:
            _equal("bytes left after evict()", after.size_bytes <= number * 100, True)

    def _scrub(self, number: int, holder: str) -> None:
        _equal("damaged files of a whole store", self._store.scrub("", MAX_READ_BYTES).damaged, ())

    def _chosen(self, number: int) -> list[str]:
        names = sorted(self._contents)
        return [names[number % len(names)]] if names else []

    def _check(self) -> None:
        usage = self._store.usage()
        _equal("usage within its bounds", usage.size_bytes <= SMALL_BYTES and usage.files <= SMALL_FILES, True)
        _equal("pins()", {tuple(pin) for pin in self._store.pins()}, self._pinned)
        _equal("usage().pins", usage.pins, len(self._pinned))
        for name in {blob for _, blob in self._pinned}:
            _equal(f"{name}, which is pinned", self._store.find(name) is not None, True)


# ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _roomy(place: BlobPlace) -> BlobStore:
    return place.open(max_bytes=ROOMY_BYTES, max_files=ROOMY_FILES, fresh=True)


def _read_all(store: BlobStore, name: str) -> bytes:
    return b"".join(store.chunks(name))


def _long_read(store: BlobStore) -> bytes:
    with store.writer() as writer:
        for _ in range(MAX_READ_BYTES // CHUNK_BYTES + 1):
            writer.write(bytes(CHUNK_BYTES))
        name = writer.commit()
    return store.read(name)


def _bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that do not repeat from chunk to chunk."""
    return random.Random(f"{seed}/{size}").randbytes(size)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise NonConformance(f"{what}: {_shown(found)}; expected {_shown(expected)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


def _refused(what: str, call: Callable[[], T], kind: type[HALError]) -> None:
    try:
        result = call()
    except kind:
        return
    except Exception as error:
        raise NonConformance(f"{what}: raised {type(error).__name__}: {error}; expected {kind.__name__}") from error
    raise NonConformance(f"{what}: returned {_shown(result)}; expected {kind.__name__}")
