"""Short programs run to their end: code, output, time, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.core.model.errors import DeniedError, NotFoundError
from hal.runtime.identity import ProcessIdentity, identify, wait_gone
from hal.runtime.script import OUTPUT_BYTES
from hal.runtime.script_end import ScriptEnd
from tests.runtime.real_runtime import run_real


def run(tmp_path: Path, *argv: str, timeout_ms: int = 60_000, **env: str) -> ScriptEnd:
    return run_real(tmp_path, lambda runtime: runtime.run_script(argv, env=env, timeout_ms=timeout_ms))


def sh(tmp_path: Path, text: str, timeout_ms: int = 60_000, **env: str) -> ScriptEnd:
    return run(tmp_path, "/bin/sh", "-c", text, timeout_ms=timeout_ms, **env)


def test_a_script_tells_its_code_and_all_it_wrote(tmp_path: Path) -> None:
    """Both streams, and the variables that were added."""
    assert sh(tmp_path, "echo out $NAME; echo err >&2; exit 3", NAME="n1") == ScriptEnd(3, "out n1\nerr")


def test_a_script_that_a_signal_ends_tells_it(tmp_path: Path) -> None:
    """As a negative number."""
    assert sh(tmp_path, "kill -TERM $$").code == -15


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    """A MiB is written, 4 KiB are kept, the last line among them."""
    ended = sh(tmp_path, "head -c 1048576 /dev/zero | tr '\\0' x; echo; echo last")
    assert (len(ended.output) <= OUTPUT_BYTES, ended.output.endswith("\nlast")) == (True, True)


def test_a_script_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    """The sleep that it started is gone, too."""
    pid = tmp_path / "pid"
    ended = sh(tmp_path, f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait", timeout_ms=1_000)
    assert ended.timed_out
    if pid.exists():  # on a machine that is too busy it did not come so far
        try:
            child: ProcessIdentity | None = identify(int(pid.read_text()))
        except ProcessLookupError:
            child = None
        assert child is None or wait_gone(child, 60.0)


def test_a_script_that_leaves_a_child_behind_is_not_waited_for(tmp_path: Path) -> None:
    """The child holds the output open; the script has ended."""
    ended = sh(tmp_path, "sleep 2 & echo done")
    assert (ended.code, ended.output) == (0, "done")


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    """No such file; no right to run it."""
    with pytest.raises(NotFoundError, match="/no/such cannot be started"):
        run(tmp_path, "/no/such")
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(DeniedError, match="cannot be started"):
        run(tmp_path, str(plain))
