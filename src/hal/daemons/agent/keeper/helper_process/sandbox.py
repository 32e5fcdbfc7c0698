"""The program of a sandboxed step: bubblewrap, which sets up what the step sees and then becomes its program.

It runs as the step's user and takes from the step what the words of its job say (`hal.core.model.sandbox`). Without
`own-proc` nothing stays between the step and its parent. With it, bubblewrap waits outside the step's namespace for its
end: that process ignores the signals that are meant for the step, which get to the step itself, too.
"""

from __future__ import annotations

import os

from hal.daemons.agent.keeper.helper_process.device_files import gpu_files
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError, CannotSpawnHereError
from hal.runtime.regular_files import NotRegularError, read_regular

PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
"""Where bubblewrap is looked for: not in PATH, which the job sets."""
ENV = "/usr/bin/env"
SHELL = "/bin/sh"
FOR_STEPS = "TERM,INT,HUP,QUIT,USR1,USR2"
"""Signals that bubblewrap's own process leaves to the step."""
SHARED_MEMORY = "/dev/shm"
PRIVATE = ("/tmp", "/var/tmp", SHARED_MEMORY)
WRITABLE = "writable="
MAX_LINE_BYTES = 4_096

FIRST = 0
"""Of two mounts on one path, what is hidden by the other."""
LAST = 1


def find_bubblewrap() -> str:
    """Return its path; '' if this node does not have it."""
    return next((path for path in PLACES if os.access(path, os.X_OK)), "")


def sandboxed(
    words: tuple[str, ...],
    program: str,
    argv: list[str],
    env: dict[str, str],
    *,
    here: str,
    keeps: bool = False,
    script: bool = False,
    gpus: bool = False,
    own_files: tuple[str, ...] = (),
) -> list[str]:
    """Build the command that runs a program in a sandbox.

    Args:
        words: as in the template.
        argv: of the program, with its name as the first.
        env: complete.
        here: the directory that it begins in.
        keeps: the job has named that directory, so it may write there.
        script: the program is a script of the job, in a directory of HAL's.
        gpus: the job asks for GPUs.
        own_files: device files of those that are its own; (): not known, so it has those of all.
    Raises:
        CannotSpawnError: the job names a directory that does not exist here.
        CannotSpawnHereError: this node has no bubblewrap.
    """
    bubblewrap = find_bubblewrap()
    if not bubblewrap:
        raise CannotSpawnHereError("its sandbox needs bubblewrap, which this node does not have")
    command = [bubblewrap]
    if "read-only" in words:
        command += ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    else:
        command += ["--dev-bind", "/", "/"]
    if "own-dev" in words:
        command += ["--dev", "/dev"]
        for path in gpu_files(own_files) if gpus else ():
            command += ["--dev-bind-try", path, path]
    if "private-tmp" not in words and ("own-dev" in words or "read-only" in words):
        command += ["--ro-bind-try" if "read-only" in words else "--bind-try", SHARED_MEMORY, SHARED_MEMORY]
    mounts = _mounts(words, env, here, keeps=keeps) + _of_hal(env, program if script else "")
    for _, _, mount in sorted(mounts):
        command += mount
    if "no-network" in words:
        command += ["--unshare-net"]
    if os.geteuid() == 0:
        command += ["--cap-drop", "ALL"]
    inner = [program, *argv[1:]]
    if "own-proc" in words:
        command += ["--unshare-pid", "--proc", "/proc"]
        command = [ENV, f"--ignore-signal={FOR_STEPS}", *command]
        through = [SHELL, "-c", 'exec "$@"', SHELL] if "=" in program else []  # env would take it for a variable
        inner = [ENV, f"--default-signal={FOR_STEPS}", *through, *inner]
    return [*command, "--chdir", here, "--", *inner]


Mount = tuple[int, int, list[str]]
"""By depth, and what is hidden first: what is above must not hide what is below."""


def _mount(order: int, path: str, *how: str) -> Mount:
    return path.rstrip("/").count("/"), order, [*how, path]


def _mounts(words: tuple[str, ...], env: dict[str, str], here: str, *, keeps: bool) -> list[Mount]:
    found = []
    if "private-tmp" in words:
        for path in PRIVATE:
            if os.path.isdir(path) and not os.path.islink(path):
                found.append(_mount(FIRST, path, "--perms", "1777", "--tmpfs"))
    if here != "/":
        found.append(_mount(LAST, here, "--bind" if keeps or "read-only" not in words else "--ro-bind", here))
    for word in words:
        if word.startswith(WRITABLE):
            path = os.path.realpath(word.removeprefix(WRITABLE))
            if not os.path.isdir(path):
                raise CannotSpawnError(126, f"sandbox: '{path}' is not a directory of this node")
            found.append(_mount(LAST, path, "--bind", path))
    return found


def _of_hal(env: dict[str, str], script: str) -> list[Mount]:
    """What a step needs of HAL, and what it must not see: the keys, the tokens and the store of a HAL of its user."""
    found = []
    if script:
        found.append(_mount(LAST, script, "--ro-bind", script))
    for path in (env.get("HAL_SECRETS_DIR", ""), os.path.dirname(env.get("HAL_STEP_SOCKET", ""))):
        if path:
            found.append(_mount(LAST, path, "--ro-bind-try", path))
    home = env.get("HAL_HOME", "")
    if _is_ours(home):
        named = f"{home}/run/socket-dir"
        found.append(_mount(FIRST, home, "--tmpfs"))
        found.append(_mount(LAST, named, "--ro-bind-try", named))
        sockets = _sockets(named)
        if sockets:
            found.append(_mount(FIRST, sockets, "--perms", "0700", "--tmpfs"))
            found.append(_mount(LAST, f"{sockets}/api.sock", "--ro-bind-try", f"{sockets}/api.sock"))
    return found


def _is_ours(home: str) -> bool:
    try:
        return bool(home) and os.stat(home).st_uid == os.geteuid()
    except OSError:
        return False


def _sockets(named: str) -> str:
    """The directory of HAL's sockets, which that file names; '' if there is none."""
    try:
        path = os.fsdecode(read_regular(named, MAX_LINE_BYTES)).strip()
    except (OSError, NotRegularError):
        return ""
    return path if os.path.isabs(path) and os.path.isdir(path) else ""
