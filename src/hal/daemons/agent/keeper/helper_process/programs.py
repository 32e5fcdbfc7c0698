"""The program of a step: where it is, how it is spawned, and why that failed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
from collections.abc import Iterator
from typing import Any

from hal.daemons.agent.keeper.helper_process.spawn_failures import NODE_ERRORS, CannotSpawnError, CannotSpawnHereError
from hal.runtime.regular_files import read_regular

MAX_PATH_SHOWN = 60
"""Characters of a PATH that an error shows."""
MAX_INTERPRETER_BYTES = 256

_DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGXFSZ,
)
"""Python ignores some signals, a starter like nohup others; a step begins with none ignored."""


class Recipe:
    """What the steps of one template have in common."""

    def __init__(self, plain: dict[str, Any], variables: dict[str, str]) -> None:
        """Args:
        plain: all fields of the template by name.
        variables: what its steps have in their environment unless the template sets it.
        """
        self.argv: list[str] = list(plain["command"])
        self.script: str = plain["script"]
        self.env: dict[str, str] = variables | plain["env"]
        self.workdir: str = plain["workdir"]
        self.umask: int | None = plain.get("umask")  # a keeper from before an upgrade in place does not send it
        """Of what is created and begun for the step; None: this process's own."""
        self.sandbox: tuple[str, ...] = tuple(plain["sandbox"])
        self.interactive: str = plain["interactive"]
        self.hangup = "continue" if plain["continues"] else "end"
        self.gpus = bool(plain["gpu_milli"])
        self._program = ""
        """Where argv[0] was found, once it was looked up."""

    def enter_workdir(self) -> None:
        """Enter the work directory.

        Raises:
            CannotSpawnError: it does not exist, or the job may not enter it.
            CannotSpawnHereError: this node cannot reach it.
        """
        try:
            if self.workdir:
                os.chdir(self.workdir)
                return
            try:
                os.chdir(self.env["HOME"])
            except OSError:  # not requested by the job: a user without a home can still run
                os.chdir("/")
        except OSError as error:
            where = f"work directory '{self.workdir}'"
            if isinstance(error, FileNotFoundError):
                raise CannotSpawnError(126, f"{where} does not exist on this node") from None
            if error.errno in NODE_ERRORS:
                raise CannotSpawnHereError(f"{where} cannot be entered: {error.strerror}") from None
            raise CannotSpawnError(126, f"{where} cannot be entered: {error.strerror}") from None

    def own_umask(self) -> contextlib.AbstractContextManager[None]:
        """Have the umask of its job meanwhile, if it has one; files of HAL itself are created outside of this."""
        return contextlib.nullcontext() if self.umask is None else _umask(self.umask)

    def program(self) -> str:
        """Return the path of argv[0].

        Raises:
            CannotSpawnError: it is not in PATH.
        """
        name = self.argv[0]
        if "/" in name:
            return name
        if not self._program or not os.access(self._program, os.X_OK):
            self._program = _find_program(name, self.env.get("PATH", ""))
        return self._program


def held(recipe: Recipe, program: str, argv: list[str]) -> list[str]:
    """Build the command of the process that holds the input and output of an interactive step's program."""
    holder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "step_holder.py")
    return [sys.executable, "-I", "-S", holder, recipe.interactive, recipe.hangup, program, *argv]


def spawn(program: str, argv: list[str], env: dict[str, str], actions: tuple[Any, ...]) -> int:
    """Spawn the first process of a step; returns its pid.

    Raises:
        CannotSpawnError: the job's fault.
        CannotSpawnHereError: this node's fault.
    """
    try:
        try:
            return _posix_spawn(program, argv, env, actions)
        except PermissionError:
            # A script on a file system mounted noexec still runs through its interpreter.
            interpreter = shebang(program)
            if not interpreter or not os.access(program, os.R_OK) or not os.stat(program).st_mode & 0o111:
                raise
            return _posix_spawn(interpreter[0], [*interpreter, program, *argv[1:]], env, actions)
    except (OSError, ValueError) as error:
        raise explain(error, program) from None


def shebang(path: str) -> list[str]:
    """Return the interpreter in a script's first line, with its argument; [] if there is none."""
    try:
        first = read_regular(path, MAX_INTERPRETER_BYTES, follow=True).split(b"\n", 1)[0]
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    interpreter, _, argument = first[2:].replace(b"\t", b" ").strip(b" ").partition(b" ")
    return [os.fsdecode(word) for word in (interpreter, argument.strip(b" ")) if word]


def explain(error: OSError | ValueError, program: str) -> CannotSpawnError | CannotSpawnHereError:
    """Explain a failed spawn, with the exit code that shells give it if it is the job's fault."""
    number = getattr(error, "errno", 0)
    name = f"'{program}'"
    if number in (errno.EAGAIN, errno.ENOMEM):
        return CannotSpawnHereError(f"this node cannot create more processes: {error}")
    if number in NODE_ERRORS:
        return CannotSpawnHereError(f"{name} cannot be run on this node: {error}")
    if number in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.exists(program):
            return CannotSpawnError(127, f"no such program {name}")
        interpreter = shebang(program)
        if not interpreter:
            return CannotSpawnError(126, f"{name} cannot be run: the loader that it needs does not exist")
        ends = "; its first line ends with a carriage return (Windows line ends)" * (interpreter[-1].endswith("\r"))
        shown = interpreter[0].rstrip("\r")
        return CannotSpawnError(126, f"{name} cannot be run: its interpreter '{shown}' does not exist{ends}")
    if number == errno.EACCES:
        if os.path.isdir(program):
            return CannotSpawnError(126, f"{name} is a directory, not a program")
        with contextlib.suppress(OSError):
            mode = os.stat(program).st_mode
            if not mode & 0o111:
                return CannotSpawnError(
                    126, f"{name} cannot be run: it is not executable (mode {stat.S_IMODE(mode):04o})"
                )
        return CannotSpawnError(126, f"{name} cannot be run: permission denied")
    if number == errno.ENOEXEC:
        return CannotSpawnError(126, f"{name} is neither a program nor a script that names its interpreter (#!)")
    if number == errno.E2BIG:
        return CannotSpawnError(126, f"{name} cannot be run: its arguments and environment are too long together")
    return CannotSpawnError(126, f"{name} cannot be run: {getattr(error, 'strerror', '') or error}")


@contextlib.contextmanager
def _umask(bits: int) -> Iterator[None]:
    former = os.umask(bits)
    try:
        yield
    finally:
        os.umask(former)


def _find_program(name: str, path: str) -> str:
    found = ""
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            found = found or candidate
    if found:
        raise CannotSpawnError(126, f"'{found}' cannot be run: it is not executable")
    raise CannotSpawnError(127, f"no such program '{name}'; looked in PATH={_shown_path(path)}")


def _shown_path(path: str) -> str:
    """The first directories, and how many there are: this text is in a row of a list."""
    if len(path) <= MAX_PATH_SHOWN:
        return path
    first = path[:MAX_PATH_SHOWN].rpartition(":")[0] or path[:MAX_PATH_SHOWN]
    return f"{first}:… ({path.count(':') + 1} directories)"


def _posix_spawn(program: str, argv: list[str], env: dict[str, str], actions: tuple[Any, ...]) -> int:
    return os.posix_spawn(
        program, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
    )
