"""What really ran, told by the jobs themselves: lines in a file outside HAL_HOME, and locks that live as long as they.

Every step appends one line when it begins and one before it ends, each with a single write to a file opened for
appending, so the order of the lines is the order of what happened on this machine. A step also holds a lock on a file
of its own for as long as any process of it lives, children included, and looks at the locks of all other attempts of
its task when it begins: HAL has no part in either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import StepId

FAULT: Final = 3
"""Exit code of an attempt that was told to fail."""

_SCRIPT: Final = r"""
# $1: seconds to run; $2: attempts up to this number fail; $3: `leave` a process behind, or -
task=$HAL_JOB_ID.$HAL_TASK
tell() {
  read -r up idle </proc/uptime
  echo "$1 $HAL_JOB_ID $HAL_TASK $HAL_ATTEMPT $HAL_NODE_RANK $HAL_NODE $$ $up $2" >>"$DIARY/lines"
}
exec 9>>"$DIARY/alive/$task.$HAL_ATTEMPT.$HAL_NODE_RANK"
flock -n 9 || tell TWICE "$task.$HAL_ATTEMPT.$HAL_NODE_RANK"
for other in "$DIARY/alive/$task."*; do
  case $other in
    "$DIARY/alive/$task.$HAL_ATTEMPT."*) ;;
    *) flock -n -s "$other" true || tell TWICE "${other##*/}" ;;
  esac
done
tell START -
[ "$3" = leave ] && sleep 600 &
[ "$1" = 0 ] || sleep "$1"
code=0
[ "$HAL_ATTEMPT" -gt "$2" ] || code=3
tell END "$code"
exit "$code"
"""


class Line(NamedTuple):
    """One line; `word` is START, END, or TWICE: it found another attempt alive, `detail` says which."""

    position: int
    word: str
    step: StepId
    node: str
    pid: int
    uptime_s: float
    detail: str

    def __str__(self) -> str:
        return f"line {self.position:>4}  {self.word:<5} {self.step} on {self.node}, pid {self.pid}, {self.detail}"


class Diary:
    """The directory of one run."""

    def __init__(self, root: Path) -> None:
        self._lines = root / "lines"
        self._script = root / "job.sh"
        self.env: Final = {"DIARY": str(root)}
        (root / "alive").mkdir()
        self._script.write_text(_SCRIPT)
        self._lines.touch()

    def command(self, run_s: float, *, fails: int = 0, leave: bool = False) -> tuple[str, ...]:
        """A job that runs so long, and whose attempts up to number `fails` fail."""
        return ("sh", str(self._script), f"{run_s:g}", str(fails), "leave" if leave else "-")

    @property
    def size(self) -> int:
        """Lines so far."""
        return self._lines.read_bytes().count(b"\n")

    def read(self) -> list[Line]:
        """All lines so far, in the order in which they were written."""
        return list(self._parsed())

    def running(self) -> list[Line]:
        """The START lines of steps that have written no END yet."""
        begun: dict[StepId, Line] = {}
        for line in self._parsed():
            if line.word == "START":
                begun[line.step] = line
            elif line.word == "END":
                begun.pop(line.step, None)
        return list(begun.values())

    def _parsed(self) -> Iterator[Line]:
        text = self._lines.read_text()
        for position, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
            word, job, task, attempt, rank, node, pid, uptime_s, detail = line.split()
            step = StepId(int(job), int(task), int(attempt), int(rank))
            yield Line(position, word, step, node, int(pid), float(uptime_s), detail)
