"""What the options of another scheduler become: HAL's, a note that they do not matter here, or a refusal by name.

Pure. An option that HAL cannot honour and that would change what the job does is refused with what to use instead; one
that only concerns notes, accounting or the placement of threads is noted as ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from hal.core.model import SpecError, parse_duration, shown
from hal.core.model.units import format_duration

MIB: Final = 1 << 20
MAX_HOSTS: Final = 1_000
"""Nodes that one host list may name."""

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.:@/+-]")
_HOSTS: Final = re.compile(r"[^,\[\]]+(?:\[[0-9,-]+\][^,\[\]]*)?")
_BRACKETS: Final = re.compile(r"(.*)\[([0-9,-]+)\](.*)")


class Translation:
    """What was understood of one script's lines."""

    def __init__(self, mark: str, given: Collection[str]) -> None:
        """
        Args:
            mark: `#SBATCH`.
            given: names of HAL's options on the command line; they win, and nothing of the script is said about them.
        """
        self.mark = mark
        self.given = frozenset(given)
        self.options: dict[str, Any] = {}
        """By the names of HAL's options (`cpus`, `walltime` …), as text that they read."""
        self.env: dict[str, str] = {}
        """Variables that only the submitter can know."""
        self.applied: list[str] = []
        """For people: `cpus 2`."""
        self.ignored: list[str] = []
        """For people: `--mail-type (no mail is sent; see hal wait)`."""
        self._refused: list[tuple[str, str]] = []

    def put(self, option: str, value: Any, text: str = "") -> None:
        """Set one of HAL's options, unless the command line has it."""
        if option not in self.given:
            self.options[option] = value
            if text:
                self.applied.append(text)

    def add(self, option: str, values: list[str], text: str) -> None:
        """Add to one of HAL's repeatable options, unless the command line has it."""
        if option not in self.given:
            self.options[option] = (*self.options.get(option, ()), *values)
            self.applied.append(text)

    def ignore(self, written: str, why: str) -> None:
        """Note that this option has no effect here."""
        self.ignored.append(f"{written} ({why})")

    def refuse(self, written: str, instead: str, *, unless: str = "") -> None:
        """Refuse this option; `unless`: not if the command line has that option of HAL, which then decides."""
        if not unless or unless not in self.given:
            self._refused.append((written, instead))

    def finish(self) -> None:
        """
        Raises:
            SpecError: what is refused, each with what to use instead.
        """
        if not self._refused:
            return
        names = ", ".join(dict.fromkeys(written for written, _ in self._refused))
        instead = "; ".join(f"{written}: {text}" for written, text in dict(self._refused).items())
        raise SpecError(
            f"{self.mark} {names}: HAL has no such option, and without it the job would not mean the same",
            hint=f"{instead}; --no-sbatch submits it without its {self.mark} lines",
        )


def bad(written: str, value: str, hint: str) -> NoReturn:
    """Raise the error of an option whose value makes no sense.

    Raises:
        SpecError: always.
    """
    raise SpecError(f"{written}: '{shown(value)}' is not understood", hint=hint)


def count(written: str, value: str) -> int:
    """A whole number from 1 on.

    Raises:
        SpecError: it is none.
    """
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
        bad(written, value, "write a whole number from 1 on")
    return int(value)


def size(written: str, value: str, units: Mapping[str, int], default: str) -> int:
    """Bytes of `4G`, `500` in the unit `default`.

    Raises:
        SpecError: it is none.
    """
    match = re.fullmatch(r"([0-9]{1,15})([a-z]*)", value.strip().lower())
    if match is None or (match.group(2) and match.group(2) not in units):
        bad(written, value, "write it like 500M or 4G")
    return int(match.group(1)) * units[match.group(2) or default]


def duration(written: str, value: str) -> str:
    """A duration in HAL's form.

    Raises:
        SpecError: it is none.
    """
    return format_duration(parse_duration(value, field=written))


def job_name(translation: Translation, value: str) -> None:
    """Its name; characters that HAL's names cannot have become `_`."""
    name = _NOT_IN_NAME.sub("_", value)[:128].lstrip(".:@/+-") or "job"
    translation.put("name", name, f"name {name}")


def host_list(written: str, value: str) -> list[str]:
    """The nodes of `n1,n[3-5,07]`.

    Raises:
        SpecError: it is no list of hosts, or too long.
    """
    found: list[str] = []
    for part in _HOSTS.findall(value):
        brackets = _BRACKETS.fullmatch(part)
        if brackets is None:
            found.append(part)
            continue
        before, ranges, behind = brackets.groups()
        for one in ranges.split(","):
            first, dash, last = one.partition("-")
            if not first or (dash and not last) or int(last or first) - int(first) >= MAX_HOSTS:
                bad(written, value, "write it like n1,n[3-5]")
            found += [f"{before}{n:0{len(first)}}{behind}" for n in range(int(first), int(last or first) + 1)]
    if not found or len(found) > MAX_HOSTS or ",".join(_HOSTS.findall(value)) != value:
        bad(written, value, "write it like n1,n[3-5]")
    return found
