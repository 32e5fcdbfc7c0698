"""The collector's store of log lines: ingest, search over many lines, bytes on disk; as the collector's part uses it.

    .venv/bin/python benchmarks/observability_logs.py [--lines 10000000] [--directory DIR]

Lines are those of four kinds of programs, with words of a Zipf distribution, of 500 jobs of two users on 50 nodes, in
batches as they come from agents. Searches are timed cold (the first of its kind, files in the page cache) and again; a
page has 100 lines.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hal.core.model.log_config import LogsSection
from hal.planes.observability.logs.lines import Batch, Source, lines_of
from hal.planes.observability.logs.store import LogReader, LogWriter, Wanted
from hal.planes.observability.logs.words import parse_search
from hal.wire.frames.telemetry import Severity

JOBS: Final = 500
NODES: Final = 50
WORDS: Final = 20_000
BATCH_LINES: Final = 100
BATCHES: Final = 50
"""In one transaction."""
SEED: Final = 1
NOW_MS: Final = 1_700_000_000_000
SHAPES: Final = (
    "epoch {} step {} loss 0.{} lr 3e-4 tokens/s {}",
    "INFO loading shard {} of {} from /data/train/part-{:05d}.parquet worker {}",
    "ERROR worker {} lost rank {} after {} ms of {}",
    "GET /v1/items/{} 200 {} ms user {} bytes {}",
)
SEARCHES: Final[tuple[tuple[str, Wanted], ...]] = (
    ("a word of every fourth line", Wanted(search=parse_search("epoch"))),
    ("a rare word", Wanted(search=parse_search("w4e1f"))),
    ("a word that is nowhere", Wanted(search=parse_search("nowhere"))),
    ("two words, together in few lines", Wanted(search=parse_search("w0500 w0700"))),
    ("a phrase", Wanted(search=parse_search('"loading shard 7 of"'))),
    ("a phrase that is nowhere (50,000 lines checked)", Wanted(search=parse_search('"shard loading"'))),
    ("a beginning of words", Wanted(search=parse_search("w08*"))),
    ("a word in one job", Wanted(search=parse_search("epoch"), job=17)),
    ("a rare word of one user", Wanted(search=parse_search("w0800 w0001"), user="bob")),
    ("errors of one node", Wanted(severity=Severity.ERROR, node="n3")),
    ("a word, in the middle of the time", Wanted(search=parse_search("epoch"))),
    ("all lines", Wanted()),
)


def batches_of(lines: int) -> Iterator[list[Batch]]:
    """Lines in groups of one transaction each."""
    rng = random.Random(SEED)
    words = [f"w{number:04x}" for number in range(WORDS)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(WORDS)))
    sources = [
        Source(f"n{job % NODES}", "step", job + 1, 0, 1, 0, "stdout", "alice" if job % 3 else "bob")
        for job in range(JOBS)
    ]
    read = [0] * JOBS
    for turn in range(lines // (BATCH_LINES * BATCHES)):
        group = []
        tails = rng.choices(words, cum_weights=weights, k=6 * BATCH_LINES * BATCHES)
        numbers = rng.choices(range(5_000), k=4 * BATCH_LINES * BATCHES)
        for batch in range(BATCHES):
            job = rng.randrange(JOBS)
            texts = []
            for line in range(BATCH_LINES):
                at = batch * BATCH_LINES + line
                text = SHAPES[line & 3].format(*numbers[4 * at : 4 * at + 4])
                texts.append(f"{text} {' '.join(tails[6 * at : 6 * at + 6])}\n")
            data = "".join(texts).encode()
            begun = time.process_time()
            group.append(Batch(sources[job], list(lines_of(data, read[job], NOW_MS + turn)), read[job] + len(data)))
            read[job] += len(data)
            PARSED[0] += time.process_time() - begun
        yield group


PARSED: Final = [0.0]
"""CPU seconds of splitting and reading lines."""


def main() -> int:
    """Print one JSON object for each measurement, and a table of searches on standard error."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=10_000_000)
    options.add_argument("--directory", type=Path, default=None)
    asked = options.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="hal-logs-", dir=asked.directory))
    try:
        measure(directory, asked.lines)
    finally:
        shutil.rmtree(directory)
    return 0


def report(bench: str, value: float, unit: str, **more: object) -> None:
    """Print a measurement."""
    print(json.dumps({"bench": bench, "value": round(value, 2), "unit": unit, **more}), flush=True)


def measure(directory: Path, lines: int) -> None:
    """Fill a store, and search it."""
    writer = LogWriter(directory, max_bytes=LogsSection().size_bytes, keep_ms=0)
    kept, spent, wall, turn = 0, 0.0, 0.0, 0
    for turn, group in enumerate(batches_of(lines)):
        begun, clock = time.process_time(), time.perf_counter()
        kept += writer.add(group, NOW_MS + turn)
        spent += time.process_time() - begun
        wall += time.perf_counter() - clock
        if turn % 100 == 0:
            writer.tend(NOW_MS + turn)
    writer.tend(NOW_MS + turn)
    writer.close()
    note = f"{kept:,} lines in {writer.files} files"
    report("logs-ingest", kept / (wall + PARSED[0]), "lines/s", target=20_000, note=note)
    report("logs-ingest-cpu", kept / (spent + PARSED[0]), "lines/s of CPU", note=note)
    report("logs-bytes", writer.bytes / kept, "bytes/line", better="lower", note="text and index")
    reader = LogReader(directory)
    worst = 0.0
    for name, wanted in SEARCHES:
        if "middle" in name:
            wanted = wanted._replace(since_ms=NOW_MS + turn // 2, until_ms=NOW_MS + turn // 2 + 5)
        times = []
        for _ in range(5):
            clock = time.perf_counter()
            page = reader.page(wanted)
            times.append((time.perf_counter() - clock) * 1_000)
        worst = max(worst, times[0])
        again = statistics.median(times)
        print(f"{name:<50} {len(page.lines):>4} lines  {times[0]:>7.1f} ms, again {again:>7.1f} ms", file=sys.stderr)
    reader.close()
    report(
        "logs-search", worst, "ms", target=1_000, better="lower", note=f"slowest of {len(SEARCHES)} first pages; {note}"
    )


if __name__ == "__main__":
    sys.exit(main())
