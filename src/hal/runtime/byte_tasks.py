"""Functions for clients of sessions that are not written in Python: bytes in, bytes out; commands.

A client names them by a pickle that it writes as a constant, `\\x80\\x03chal.runtime.byte_tasks\\nNAME\\n.`, and their
arguments are byte strings. Neither raises: what goes wrong is in the bytes that they return.
"""

from __future__ import annotations

import importlib
import struct
import traceback
from collections.abc import Callable
from typing import Any, Final

from hal.runtime.commands import run_command
from hal.wire.frames.sessions import MAX_INLINE_BYTES

DONE: Final = b"\0"
FAILED: Final = b"\1"
MAX_OUTPUT_BYTES: Final = MAX_INLINE_BYTES // 2 - 64
"""Of each stream of a command; the rest is dropped."""
_END: Final = struct.Struct("<iI")
"""Exit code, and how many bytes of standard output follow; then comes standard error."""


def call(name: bytes, data: bytes) -> bytes:
    """Call a function with bytes.

    Args:
        name: `MODULE:FUNCTION`; what it returns must be bytes.
    Returns: `DONE` and the result, or `FAILED` and a traceback.
    """
    try:
        module, _, function = name.decode().partition(":")
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
        return DONE + _bytes_of(found, data)
    except Exception:
        return FAILED + traceback.format_exc().encode(errors="replace")[-MAX_OUTPUT_BYTES:]


def command(*argv: bytes) -> bytes:
    """Run a command without input; its process group is that of the worker.

    Returns: exit code (that of a signal is negative; 127: it cannot be started), and output.
    """
    try:
        code, output, errors = run_command(argv, MAX_OUTPUT_BYTES)
    except (OSError, ValueError) as error:
        return _END.pack(127, 0) + str(error).encode(errors="replace")
    return b"".join((_END.pack(code, len(output)), output, errors))


def _bytes_of(function: Callable[[bytes], Any], data: bytes) -> bytes:
    result = function(data)
    if not isinstance(result, bytes):
        raise TypeError(f"a function for bytes returned {type(result).__name__}")
    if len(result) >= MAX_INLINE_BYTES - 64:
        raise ValueError(f"{len(result)} bytes; a result has at most {MAX_INLINE_BYTES - 64}")
    return result
