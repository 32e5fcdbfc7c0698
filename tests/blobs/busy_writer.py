"""A process that writes blobs into a small store until it is killed, and prints the name of each."""

from __future__ import annotations

import random
import sys
from itertools import count
from pathlib import Path

from hal.blobs import open_blobs
from hal.core.interfaces.blobs import CHUNK_BYTES
from hal.runtime.real_directory import open_private_directory


def main(root: str, name: str, rounds: int) -> None:
    """Write; every tenth blob has two chunks, and every blob repeats some time."""
    rng = random.Random(name)
    store = open_blobs(open_private_directory(Path(root)), name, max_bytes=4 * CHUNK_BYTES, max_files=64)
    for number in count() if not rounds else range(rounds):
        size = CHUNK_BYTES + 1 + number % 3 if number % 10 == 5 else 1 + rng.randrange(2_000)
        data = bytes([size % 7]) * size
        blob = store.put(data)
        if number % 7 == 0:
            store.unpin_all(name)
            store.pin(blob, name)
        print(blob, size, flush=True)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
