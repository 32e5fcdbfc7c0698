"""What may not be evicted: pinned blobs, and what living processes are writing or reading.

Pins are files and outlive processes. A lease is a file of a process: it counts as long as the process holds the lock on
its file in `instances`, which the kernel releases when the process dies, however it dies. All calls are made under the
store's lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

from hal.blobs.content import DIGEST_BYTES, MANY_CHUNKS, BlobName, parse_manifest
from hal.blobs.layout import Layout
from hal.core.interfaces.blobs import CHUNK_BYTES, Pin
from hal.core.interfaces.directory import Directory, Lock
from hal.core.model.errors import SpecError, shown

_HOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PIN: Final = re.compile(rf"({_HOLDER.pattern})@(sha256|chunks)-([0-9a-f]{{64}})")
MAX_LEASE_BYTES: Final = CHUNK_BYTES + DIGEST_BYTES


class Instance:
    """This process's presence in a store.

    Args:
        name: unique, of digits and letters: a process that uses the same one is taken for this.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._name = name
        self._numbers = count(1)
        self._lock: Lock | None = layout.instances.lock(name, wait=False)

    def new_name(self) -> str:
        """A name for a file of this process in `staging` or `leases`, never used before."""
        return f"{self._name}-{next(self._numbers)}"

    def close(self) -> None:
        """End the presence: leases of this process count no more."""
        if self._lock is not None:
            self._layout.instances.remove(self._name)
            self._lock.release()
            self._lock = None


def forget_dead_instances(layout: Layout) -> None:
    """Remove the files of processes that do not live any more."""
    owned: dict[str, list[tuple[Directory, str]]] = {}
    for directory in (layout.staging, layout.leases):
        for entry in directory.entries():
            owned.setdefault(entry.name.partition("-")[0], []).append((directory, entry.name))
    for entry in layout.instances.entries():
        owned.setdefault(entry.name, [])
    for name, files in owned.items():
        lock = layout.instances.lock(name, wait=False)
        if lock is None:
            continue  # it lives
        for directory, file in files:
            directory.remove(file)
        layout.instances.remove(name)
        lock.release()


def protected_files(layout: Layout) -> set[str]:
    """The digests of all chunks and manifests that may not be evicted."""
    protected: set[str] = set()
    for kind, digest in {(pin.kind, pin.digest) for _, pin in pin_files(layout)}:
        protected.add(digest)
        if kind == MANY_CHUNKS:
            protected.update(_chunks_of(layout, digest))
    for entry in layout.leases.entries():
        try:
            digests = layout.leases.read(entry.name, MAX_LEASE_BYTES).hex()
        except FileNotFoundError:
            continue  # its process has just ended it, for which it needs no lock
        protected.update(digests[at : at + 64] for at in range(0, len(digests), 64))
    return protected


def pin_file(blob: BlobName, holder: str) -> str:
    """The name of a pin's file.

    Raises:
        SpecError: `holder` is not a name.
    """
    if not _HOLDER.fullmatch(holder):
        raise SpecError(
            f"'{shown(holder)}' cannot hold pins",
            hint="a holder has 1 to 64 letters, digits, '.', '_' or '-', and begins with a letter or digit",
        )
    return f"{holder}@{blob.kind}-{blob.digest}"


def pin_files(layout: Layout) -> Iterator[tuple[str, BlobName]]:
    """Holder and blob of every pin."""
    for entry in layout.pins.entries():
        found = _PIN.fullmatch(entry.name)
        if found is not None:
            yield found[1], BlobName(found[2], found[3])


def all_pins(layout: Layout) -> list[Pin]:
    """Every pin, sorted."""
    return sorted(Pin(holder, blob.text) for holder, blob in pin_files(layout))


def _chunks_of(layout: Layout, digest: str) -> tuple[str, ...]:
    """The chunks of a stored manifest; none if it is missing or damaged: then the blob is lost anyway."""
    try:
        return parse_manifest(layout.manifests.read(digest, CHUNK_BYTES + 1)).chunks
    except (FileNotFoundError, SpecError):
        return ()
