"""`#PBS` lines: what each option of qsub becomes (OpenPBS, PBS Professional, Torque).

Pure. The meaning is that of PBS: a bare `mem` is bytes, a bare `walltime` seconds, and a job starts in its user's home
directory. Source: the manual page of qsub, OpenPBS 23.06.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hal.cli.jobs.directives import PBS, Directive
from hal.cli.jobs.foreign_mail import NONE, Mail, pbs_mail
from hal.cli.jobs.foreign_options import Translation, bad, count, duration, job_name, size
from hal.core.model import SpecError, format_size

_SIZES: Final = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40} | {
    "w": 8, "kw": 8 << 10, "mw": 8 << 20, "gw": 8 << 30, "tw": 8 << 40
}  # fmt: skip
_WITH_VALUE: Final = frozenset("aAceGjJkmMNopPqrRSStTuvlWC")
_FLAGS: Final = frozenset("fhIVXz")
_IGNORED: Final[Mapping[str, str]] = {
    "k": "HAL keeps output where it is named",
    "R": "hal rm removes outputs",
    "z": "hal submit -q prints the id alone",
    "c": "HAL takes no checkpoints; use #HAL --signal",
    "C": "the prefix of HAL's lines is #HAL",
}
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "u": ("use #HAL --user", "user"),
    "P": ("use #HAL --account", "account"),
    "I": ("use hal run -it", ""),
    "X": ("use hal run -it, or hal forward", ""),
    "S": ("name the interpreter in the first line of the script", ""),
    "G": ("use hal run -it", ""),
    "f": ("hal submit does not wait", ""),
}
_HINT: Final = "write it like select=1:ncpus=4:mem=8gb, or walltime=01:00:00"


def translated_pbs(
    lines: Sequence[Directive], *, workdir: str, home: str, host: str, given: Collection[str] = (), mail: Mail = NONE
) -> Translation:
    """Translate the `#PBS` lines of a script; see `sbatch.translated_sbatch`.

    Raises:
        SpecError: as there.
    """
    made = Translation(PBS, given)
    values: dict[str, str] = {}
    resources: dict[str, str] = {}
    for line in lines:
        try:
            for letter, value in _options(line.words):
                if letter == "l":
                    resources |= _pairs(value)
                else:
                    values[letter] = value
        except SpecError as error:
            raise SpecError(f"line {line.line}: {PBS} {error.message}", hint=error.hint) from None
    for letter in values:
        if letter in _IGNORED:
            made.ignore(f"-{letter}", _IGNORED[letter])
        elif letter in _REFUSED:
            instead, unless = _REFUSED[letter]
            made.refuse(f"-{letter}", instead, unless=unless)
    _resources(made, resources)
    _rest(made, values, workdir)
    pbs_mail(made, mail, values.get("m", "a" if "M" in values else ""), values.get("M", ""))
    made.env |= {"PBS_O_WORKDIR": workdir, "PBS_O_HOST": host, "PBS_O_HOME": home}
    made.put("workdir", home, f"workdir {home} (PBS_O_WORKDIR is {workdir})")
    made.finish()
    return made


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        letter = word[1:2]
        if not word.startswith("-") or not letter or letter not in _WITH_VALUE | _FLAGS:
            raise SpecError(f"'{word}' is not an option of qsub", hint="see man qsub, or docs/from-slurm.md")
        if letter in _FLAGS:
            found.append((letter, ""))
        elif word[2:] or rest:
            found.append((letter, word[2:] or rest.pop(0)))
        else:
            raise SpecError(f"{word} needs a value", hint=f"write it behind the option: {word} VALUE")
    return found


def _pairs(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            bad("-l", text, _HINT)
        out[name.strip()] = value.strip()
    return out


def _resources(made: Translation, asked: Mapping[str, str]) -> None:
    """`select=1:ncpus=4:mem=8gb` and `nodes=1:ppn=4` are one node; the rest is of the whole job."""
    amounts = dict(asked)
    for name in ("select", "nodes"):
        chunk = amounts.pop(name, "")
        if not chunk:
            continue
        number, *more = chunk.split(":")
        if "+" in chunk or count(f"-l {name}", number) > 1:
            made.refuse(f"-l {name}={chunk}", "HAL gives no PBS_NODEFILE: see docs/from-slurm.md#several-nodes, "
                        "and write #HAL --nodes N --first-node", unless="nodes")  # fmt: skip
        for part in more:
            key, equals, value = part.partition("=")
            if equals:
                amounts[key] = value
            else:
                made.add("constraint", [part], f"constraint {part} (a label of nodes)")
    readers = {"ncpus": "cpus", "ppn": "cpus", "ngpus": "gpus", "gpus": "gpus"}
    for name, value in amounts.items():
        written = f"-l {name}"
        if name in readers:
            number = str(count(written, value))
            made.put(readers[name], number, f"{readers[name]} {number}")
        elif name in ("mem", "pmem", "vmem"):
            amount = format_size(size(written, value, _SIZES, "b"))
            made.put("memory", amount, f"memory {amount}")
        elif name == "walltime":
            limit = duration(written, f"{value}s" if value.isdigit() else value)
            made.put("walltime", limit, f"walltime {limit}")
        elif name in ("mpiprocs", "ompthreads"):
            made.ignore(f"{written}={value}", "start ranks and threads in the script")
        elif name == "place" and value in ("free", "pack", "shared"):
            made.ignore(f"{written}={value}", "one node is always one place")
        elif name == "software":
            made.add("licence", [value], f"licence {value}")
        else:
            made.refuse(f"{written}={value}", "use #HAL --request, or --constraint", unless="request")


def _output(letter: str, text: str, workdir: str, *, array: bool) -> str:
    """A path of `-o` or `-e`: from where qsub was called, though the job begins at home; in a directory under the name
    that PBS would give it."""
    path = posixpath.join(workdir, re.sub(r"^[A-Za-z0-9_.-]*:", "", text)).replace("%", "%%")
    for pattern, mine in (("^array_index^", "%a"), ("$PBS_JOBID", "%j"), ("$PBS_ARRAY_INDEX", "%a")):
        path = path.replace(pattern, mine)
    return f"{path}%x.{letter}%j{'.%a' if array else ''}" if path.endswith("/") else path


def _rest(made: Translation, values: Mapping[str, str], workdir: str) -> None:
    if "N" in values:
        job_name(made, values["N"])
    for letter, option in (("q", "queue"), ("A", "account")):
        if letter in values:
            made.put(option, values[letter], f"{option} {values[letter]}")
    joined = values.get("j", "n")
    if joined not in ("oe", "eo", "n"):
        bad("-j", joined, "write oe, eo or n")
    for letter, option in (("o", "stdout"), ("e", "stderr")):
        if letter in values and not (letter == "e" and joined == "oe") and not (letter == "o" and joined == "eo"):
            path = _output(letter, values[letter], workdir, array=not {"J", "t"}.isdisjoint(values))
            made.put(option, path, f"{option} {path}")
    for letter in ("J", "t"):
        if letter in values:
            array = values[letter]
            made.put("array", f"{array}-{array}" if array.isdigit() else array, f"array {array}")
    if "V" in values:
        made.put("export_all", True, "your whole environment")
    if "v" in values:
        env = [one for one in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:=|,|$))", values["v"]) if one]
        made.add("env", env, f"env {', '.join(one.partition('=')[0] for one in env)}")
    if "h" in values:
        made.put("hold", True, "hold")
    if "p" in values:
        made.refuse(f"-p {values['p']}", "HAL's priorities have another scale: #HAL --priority N", unless="priority")
    if "r" in values:
        rule = "requeue" if values["r"] == "y" else "wait"
        made.put("on_node_lost", rule, f"on-node-lost {rule}")
    if "a" in values:
        made.put("begin", _begin(values["a"]), f"begin {_begin(values['a'])}")
    for one in filter(None, values.get("W", "").split(",")):
        name, _, value = one.partition("=")
        if name == "depend" and re.fullmatch(r"(after|afterok|afternotok|afterany)(:[0-9]+(\[\])?)+", value):
            kind, *jobs = value.replace("[]", "").split(":")
            expression = " & ".join(f"{kind}:{job}" for job in jobs)
            made.put("after", (expression,), f"after {expression}")
        elif name == "umask":
            made.put("umask", value, f"umask {value}")
        elif name in ("sandbox", "block"):
            made.refuse(f"-W {one}", "set it in the script, or use hal submit --wait")
        else:
            made.refuse(f"-W {one}", "use #HAL --after, or see hal submit --help", unless="after")


def _begin(text: str) -> str:
    """`[[CC]YY]MMDDhhmm[.SS]` as an instant.

    Raises:
        SpecError: it is none, or names no year.
    """
    match = re.fullmatch(r"(?:([0-9]{2})?([0-9]{2})([0-9]{2})([0-9]{2}))?([0-9]{2})([0-9]{2})(?:\.([0-9]{2}))?", text)
    if match is None:
        bad("-a", text, "write CCYYMMDDhhmm, or hhmm")
    century, year, month, day, hour, minute, second = match.groups()
    if not month:
        return f"{hour}:{minute}:{second or '00'}"
    return f"{century or 20}{year}-{month}-{day}T{hour}:{minute}:{second or '00'}"
