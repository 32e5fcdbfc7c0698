"""A pipeline with asyncio: each file is prepared and then measured, as soon as its own preparation is done.

Run it with a HAL up. `after=` lets HAL wait; nothing here polls.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import hal

FILES = 4


async def one_file(client: hal.AsyncClient, folder: Path, number: int) -> int:
    """Lines of the prepared file."""
    path = folder / f"{number}.txt"
    prepare = await client.submit(f"seq {number * 10 + 1} > {path}", name=f"prepare-{number}", cpus=0.25)
    measure = await client.submit(["wc", "-l", str(path)], name=f"measure-{number}", cpus=0.25, after=prepare)
    await measure.wait(timeout=120, check=True)
    return int((await measure.logs()).split()[0])


async def main() -> int:
    """Returns 0 when every file has as many lines as it should."""
    async with await hal.aconnect() as client:
        with tempfile.TemporaryDirectory() as folder:
            lines = await asyncio.gather(*(one_file(client, Path(folder), n) for n in range(FILES)))
    print(f"lines: {list(lines)}")
    return 0 if list(lines) == [n * 10 + 1 for n in range(FILES)] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
