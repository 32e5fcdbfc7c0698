"""Starting a process that outlives its starter.

Standard library only; blocks for a millisecond or two.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hal.runtime.regular_files import open_own


def start_detached(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own: no terminal, stdin from /dev/null, stdout and stderr appended to
    `output`.

    The starter is its parent and should reap it while it lives; if the starter ends first, init does.

    Args:
        argv: program and arguments; the program is looked up in PATH.
        env: its whole environment; this process's if None.
        cwd: working directory; `/` if None.
        output: file (created with mode 0600), or None for /dev/null.
        pass_fds: further descriptors that it inherits.
    Raises:
        NotFoundError: there is no such program or directory.
        DeniedError: it may not be executed.
    """
    if output is None:
        sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    else:
        sink = open_own(output, os.O_WRONLY | os.O_APPEND)
    try:
        return subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd="/" if cwd is None else cwd,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        from hal.core.model.errors import NotFoundError

        raise NotFoundError(f"{argv[0]} cannot be started: {error.strerror}: {error.filename}") from error
    except PermissionError as error:
        from hal.core.model.errors import DeniedError

        raise DeniedError(f"{argv[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(sink)
