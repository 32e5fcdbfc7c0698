"""What a job's processes are kept from on their node, beyond what their user may do there.

Pure. Written as words: `private-tmp`, `own-proc`, `own-dev`, `read-only`, `no-network`, `writable=/scratch/a`; `true`
or `yes` stands for the first four. What the words do on a node is in `hal.daemons.agent.keeper.helper_process.sandbox`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final

from hal.core.model.errors import SpecError, shown

PRIVATE_TMP: Final = "private-tmp"
"""/tmp, /var/tmp and /dev/shm are empty, its own, in memory, and gone at its end."""
OWN_DEV: Final = "own-dev"
"""/dev has the harmless devices only, and GPUs if the job asks for any."""
OWN_PROC: Final = "own-proc"
"""It sees its own processes only."""
READ_ONLY: Final = "read-only"
"""It can change no file but those below its work directory and the `writable` ones, and its private /tmp."""
NO_NETWORK: Final = "no-network"
"""Only a loopback device of its own. Unix sockets that it can see still work."""
WRITABLE: Final = "writable="
"""A directory that `read-only` leaves as it is."""
WORDS: Final = (PRIVATE_TMP, OWN_PROC, OWN_DEV, READ_ONLY, NO_NETWORK)
USUAL: Final = (OWN_DEV, OWN_PROC, PRIVATE_TMP, READ_ONLY)
"""What `true` stands for."""
MAX_WRITABLE: Final = 16
MAX_WORDS: Final = len(WORDS) + 2 * MAX_WRITABLE
"""Of a job and its queue together."""
MAX_PATH_BYTES: Final = 4_000
_CONTROL: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f]")


def parse_sandbox(written: object) -> object:
    """Turn what people write (`true`, `yes`, `no`, `no-network,private-tmp`) into words; anything else is left as it
    is, for who checks types."""
    if isinstance(written, bool):
        return list(USUAL) if written else []
    if isinstance(written, str):
        words = [word.strip() for word in written.split(",")]
        return [part for word in words if word for part in {"yes": USUAL, "no": ()}.get(word, (word,))]
    return written


def check_sandbox(words: Sequence[str], field: str = "sandbox") -> tuple[str, ...]:
    """Return the words in canonical form: each once, sorted, paths normalised.

    Raises:
        SpecError: names `field` and the word.
    """
    found: set[str] = set()
    for word in words:
        if word in WORDS:
            found.add(word)
        elif word.startswith(WRITABLE):
            found.add(f"{WRITABLE}{_directory(word.removeprefix(WRITABLE), field)}")
        else:
            raise SpecError(
                f"{field}: '{shown(word)}' is not a word of a sandbox",
                hint=f"yes, {', '.join(WORDS)}, writable=/DIRECTORY",
            )
    writable = [word for word in found if word.startswith(WRITABLE)]
    if writable and READ_ONLY not in found:
        raise SpecError(f"{field}: writable=… has no effect without {READ_ONLY}", hint=f"add {READ_ONLY}, or yes")
    if len(writable) > MAX_WRITABLE:
        raise SpecError(f"{field}: {len(writable)} writable directories; at most {MAX_WRITABLE} are allowed")
    return tuple(sorted(found))


def merge_sandboxes(job: tuple[str, ...], queue: tuple[str, ...], name: str) -> tuple[str, ...]:
    """What holds for a job in a queue: what either of them asks for.

    Args:
        name: of the queue.
    Raises:
        SpecError: the job would write where its queue does not let it.
    """
    if not queue:
        return job
    if READ_ONLY in queue:
        allowed = [word.removeprefix(WRITABLE) for word in queue if word.startswith(WRITABLE)]
        for word in job:
            path = word.removeprefix(WRITABLE)
            if word.startswith(WRITABLE) and not any(_is_below(path, one) for one in allowed):
                raise SpecError(
                    f"sandbox: queue '{name}' does not let its jobs write to '{path}'",
                    hint=f"it lets them write to {', '.join(allowed)}" if allowed else "only to their work directories",
                )
    return tuple(sorted({*job, *queue}))


def _directory(path: str, field: str) -> str:
    if not path.startswith("/") or _CONTROL.search(path):
        raise SpecError(f"{field}: writable={shown(path)}: not an absolute path", hint="begin it with /")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise SpecError(f"{field}: writable={shown(path)}: not valid Unicode") from None
    if size > MAX_PATH_BYTES:
        raise SpecError(f"{field}: writable=…: longer than {MAX_PATH_BYTES} bytes")
    path = posixpath.normpath(path).replace("//", "/")
    if path == "/":
        raise SpecError(f"{field}: writable=/ would undo {READ_ONLY}", hint=f"leave {READ_ONLY} out")
    return path


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
