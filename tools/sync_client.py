"""Generate the sync client from the asyncio client: the same code without `async` and `await`, under other names.

    tools/sync_client.py            # write the generated files
    tools/sync_client.py --check    # fail if one of them differs from what would be written

What differs by nature is not generated: the transports (`http.py`, `async_http.py`), `job_handle.py`, the followers of
logs and the waits for many jobs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).resolve().parent.parent / "src" / "hal" / "client"

FILES: Final = {
    "async_client.py": "sync_client.py",
    "async_job.py": "job.py",
    "flows/async_player.py": "flows/player.py",
    "transport/async_stream.py": "transport/stream.py",
    "transport/async_transport.py": "transport/transport.py",
}
"""Source to generated file."""

OPENINGS: Final = {
    "async_client.py": "The sync client; thread-safe.",
    "async_job.py": "A submitted job, for synchronous code.",
    "flows/async_player.py": "Performs the steps of a flow (`hal.client.flows.steps`) over a transport.",
    "transport/async_stream.py": "What an answer that is read as it comes looks like to its readers.",
    "transport/async_transport.py": "How requests are sent, to which controller, and when again.",
}

NAMES: Final = {
    "async_client": "sync_client",
    "async_completion": "completion",
    "async_http": "http",
    "async_job": "job",
    "async_log_follower": "log_follower",
    "async_player": "player",
    "async_stream": "stream",
    "async_transport": "transport",
    "AsyncClient": "Client",
    "AsyncConnections": "Connections",
    "AsyncIterator": "Iterator",
    "AsyncJob": "Job",
    "AsyncJobHandle": "SyncJobHandle",
    "AsyncLogFollower": "LogFollower",
    "AsyncPlayer": "Player",
    "AsyncStream": "Stream",
    "AsyncTransport": "Transport",
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
TEXTS: Final = {
    "from asyncio import sleep": "from time import sleep",
    "from collections.abc import AsyncIterator, Awaitable, Callable": "from collections.abc import Callable, Iterator",
    "Callable[[float], Awaitable[object]]": "Callable[[float], object]",
    "await hal.aconnect()": "hal.connect()",
    "from hal.client.flows.async_work import on_thread\n": "",
    "        from hal.client.sync_client import Client\n": "",
    "await on_thread(step.do)": "step.do()",
    "await on_thread(opening)": "opening()",
    "async ": "",
    "await ": "",
}
"""Replaced in this order, before the names."""

_OPENING: Final = re.compile(r'\A""".*?"""', re.S)
_NAME: Final = re.compile(rf"\b(?:{'|'.join(NAMES)})\b")


def generated(source: str) -> str:
    """The sync twin of a source file."""
    text = (CLIENT / source).read_text()
    for old, new in TEXTS.items():
        text = text.replace(old, new)
    text = _NAME.sub(lambda found: NAMES[found[0]], text)
    text = _OPENING.sub(
        f'"""{OPENINGS[source]}\n\nGenerated from {Path(source).name} by tools/sync_client.py: edit that file.\n"""',
        text,
    )
    text = _ruff(text, "check", "--select", "I", "--fix", "--quiet", "--exit-zero")
    return _ruff(text, "format", "--quiet")


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(CLIENT / "generated.py"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """0 if all is as generated; with --check, 1 if a file differs."""
    differing = [source for source, target in FILES.items() if not _is_current(source, target)]
    for source in differing:
        if "--check" in arguments:
            print(f"{FILES[source]} differs from what {source} generates; run tools/sync_client.py", file=sys.stderr)
        else:
            (CLIENT / FILES[source]).write_text(generated(source))
            print(f"wrote {FILES[source]}")
    return 1 if differing and "--check" in arguments else 0


def _is_current(source: str, target: str) -> bool:
    path = CLIENT / target
    return path.exists() and path.read_text() == generated(source)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
