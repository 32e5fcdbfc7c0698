"""Durations, sizes and resource amounts: the forms that people write, and the integers in base units that HAL uses.

Pure. Base units: time in milliseconds, cpu in millicores, memory and every other byte-like resource in bytes, gpu in
milli-devices, any other named resource in whole units. Parsing is exact (decimal arithmetic, never floats from text);
`parse(print(x)) == x` for every value. Digits are ASCII. A number in text needs its unit: what it would mean differs
from one scheduler to the next, so it is refused with both readings; a number that is no text keeps its documented unit.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from hal.core.model.devices import GPU_ISLAND, counted_as
from hal.core.model.errors import SpecError, shown

MAX_AMOUNT: Final = (1 << 60) - 1
"""Largest amount of anything, in base units; one below the engine's infinity."""

UNLIMITED_TEXT: Final = "unlimited"
"""How the longest duration is printed: no limit."""
_UNLIMITED: Final = frozenset({UNLIMITED_TEXT, "infinite", "infinity"})

_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT_WORDS: Final = {
    "ms": "ms msec msecs millisecond milliseconds",
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "w": "w week weeks",
}
_UNIT_MS: Final = {word: _DURATION_UNITS_MS[unit] for unit, words in _UNIT_WORDS.items() for word in words.split()}
"""Milliseconds of each unit of time, by each of its names."""
_DURATION_PART: Final = re.compile(
    rf"([0-9]+(?:\.[0-9]+)?)\s*({'|'.join(sorted(_UNIT_MS, key=len, reverse=True))})(?![a-z])"
)
_EXACT_DURATION: Final = re.compile(
    r"(?=[0-9])(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+)s)?(?:([0-9]+)ms)?"
)
"""The form that `format_duration` writes."""
_EXACT_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000, 1)
_CLOCK: Final = re.compile(r"([0-9]+):([0-9]{1,2})(?::([0-9]{1,2}))?")
"""MM:SS or HH:MM:SS, as Slurm reads a time limit."""
_DAYS: Final = re.compile(r"([0-9]+)-([0-9]+)(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?")
"""D-HH, D-HH:MM or D-HH:MM:SS."""
_THOUSANDTHS: Final = 1_000
"""A size in a larger unit is read to three decimals and rounded to whole bytes; with more it must be exact."""
MAX_NUMBER_CHARS: Final = 64
"""Longest text of a number or duration; every value in range has a shorter one."""
REMEMBERED: Final = 4_096
"""How many texts of numbers are cached with their values."""

_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1_000,
    "kb": 1_000,
    "m": 1_000_000,
    "mb": 1_000_000,
    "g": 1_000_000_000,
    "gb": 1_000_000_000,
    "t": 1_000_000_000_000,
    "tb": 1_000_000_000_000,
    "p": 10**15,
    "pb": 10**15,
    "ki": 1 << 10,
    "kib": 1 << 10,
    "mi": 1 << 20,
    "mib": 1 << 20,
    "gi": 1 << 30,
    "gib": 1 << 30,
    "ti": 1 << 40,
    "tib": 1 << 40,
    "pi": 1 << 50,
    "pib": 1 << 50,
}
_NUMBER: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}(?![0-9A-Za-z]))?)\s*([A-Za-z]*)")

MILLI_RESOURCES: Final = frozenset({"cpu", "gpu"})
"""Resources counted in thousandths, so that half a core or half a device can be requested."""

BYTE_RESOURCES: Final = frozenset({"memory", "disk"})
"""Resources counted in bytes."""

_RESOURCE_NAME: Final = re.compile(r"[a-z][a-z0-9._/-]{0,62}")
_PLURALS: Final = {"cpus": "cpu", "cores": "cpu", "core": "cpu", "gpus": "gpu", "mem": "memory"}


class Duration(int):
    """A duration in milliseconds that prints as people write it (`90m`, `1d2h`)."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(int(self))

    def __repr__(self) -> str:
        return f"Duration('{self}')"


UNLIMITED: Final = Duration(MAX_AMOUNT)
"""No limit, where a limit is asked for: the longest duration there is."""


def limit_ms(walltime: Duration | None) -> int | None:
    """The limit that a walltime sets, in milliseconds; None for none, whether it was left out or is unlimited."""
    return None if walltime is None or walltime >= UNLIMITED else int(walltime)


def parse_duration(value: object, *, field: str = "duration") -> Duration:
    """Parse `90m`, `1d2h`, `1.5h`, `2 hours`, `250ms`, the forms of Slurm (`MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`,
    `D-HH:MM:SS`), `unlimited`, or a number of seconds to milliseconds.

    Raises:
        SpecError: the text is not a duration or is a number without a unit, or it is negative or exceeds `MAX_AMOUNT`.
    """
    if isinstance(value, Duration):
        return value
    text = _text(value, field, "a duration like '90m' or a number of seconds").lower()
    if text in _UNLIMITED:
        return UNLIMITED
    number, unit = _number(text)
    if number is not None and not unit:
        if number < 0:
            raise SpecError(f"{field}: '{shown(value)}' is negative", hint="write a positive duration, such as 30m")
        if number and isinstance(value, str):
            raise SpecError(f"{field}: {_unitless(value)}", hint=f"did you mean {_digits(text)}s or {_digits(text)}m?")
        total: Fraction | int | None = number * 1000
    else:
        total = _milliseconds(text)
    if total is None:
        raise SpecError(f"{field}: '{shown(value)}' is not a duration", hint=_DURATION_HINT)
    if not 0 <= total.numerator <= MAX_AMOUNT * total.denominator:
        raise SpecError(
            f"{field}: '{shown(value)}' is out of range", hint="a duration is between 0 and 36 million years"
        )
    if total.denominator != 1:
        raise SpecError(f"{field}: '{shown(value)}' is finer than a millisecond")
    return Duration(total.numerator)


_DURATION_HINT: Final = "write it like 90m, 1d2h, 30s or 02:30:00"


def format_duration(ms: int) -> str:
    """Format the shortest exact form: `1d2h`, `90m` as `1h30m`, `250ms`; `0s` for nothing, `unlimited` for
    `UNLIMITED`."""
    if ms == 0:
        return "0s"
    if ms == MAX_AMOUNT:
        return UNLIMITED_TEXT
    out: list[str] = []
    rest = abs(ms)
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _DURATION_UNITS_MS[unit])
        if count:
            out.append(f"{count}{unit}")
    return ("-" if ms < 0 else "") + "".join(out)


def format_clock(ms: int) -> str:
    """Format for a column: `0.4s` below ten seconds, then `2:09` and `3:05:07` as Slurm does, `12d3h` from two days on.

    `parse_duration` reads it back, but for what was cut off.
    """
    if ms < 10_000:
        return f"{ms // 1000}.{ms // 100 % 10}s"
    seconds = ms // 1000
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours >= 48:
        return f"{hours // 24}d{hours % 24}h"
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def format_wait(ms: int) -> str:
    """Format a time that passes while it is read: as `format_duration`, but from a minute on without fractions of a
    second."""
    return format_duration(ms if ms < _DURATION_UNITS_MS["m"] else ms - ms % 1000)


def parse_size(value: object, *, field: str = "memory") -> int:
    """Parse `1.5GiB`, `512M` (decimal, as in SI), `4096B`, or an integer number of bytes.

    Raises:
        SpecError: not a size or text without a unit, negative, fractional in bytes, or out of range.
    """
    text = _text(value, field, "a size like '4GiB'")
    number, unit = _number(text)
    if number is None or unit not in _SIZE_UNITS:
        raise SpecError(f"{field}: '{shown(value)}' is not a size", hint="write it like 512MiB, 1.5GiB or 4GB")
    if number > 0 and not unit and isinstance(value, str):
        digits = _digits(text)
        other = f"{digits}B" if number.denominator == 1 else f"{digits}GiB"
        raise SpecError(f"{field}: {_unitless(value)}", hint=f"did you mean {digits}MiB or {other}?")
    scale = _SIZE_UNITS[unit]
    if scale > 1 and _THOUSANDTHS % number.denominator == 0:
        number = Fraction(
            round(number * scale), scale
        )  # 1.9GiB, as it is printed for people, is no whole number of bytes
    return _checked(number, scale, value, field, finest="bytes", largest=format_size(MAX_AMOUNT + 1))


def format_size(amount: int) -> str:
    """Format in the largest binary unit that is exact to two decimals, else bytes: `1.5GiB`, `512MiB`, `1000B`."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        scale = _SIZE_UNITS[unit.lower()]
        if abs(amount) >= scale and (amount * 100) % scale == 0:
            return f"{_plain(Decimal(amount) / scale)}{unit}"
    return f"{amount}B"


def readable_amount(name: str, amount: int) -> str:
    """Format for people: a size to one decimal (`1.9GiB` for 1953125KiB), everything else as `format_amount`."""
    if name not in BYTE_RESOURCES:
        return format_amount(name, amount)
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        tenths, scale = abs(amount) * 10, _SIZE_UNITS[unit.lower()]
        if abs(amount) >= scale:
            whole, rest = divmod((tenths + scale // 2) // scale, 10)
            return f"{'-' if amount < 0 else ''}{whole}{f'.{rest}' if rest else ''}{unit}"
    return f"{amount}B"


def format_distinctly(name: str, one: int, other: int) -> tuple[str, str]:
    """Format both as `readable_amount`, or exactly if they differ but would read alike."""
    texts = readable_amount(name, one), readable_amount(name, other)
    if texts[0] == texts[1] and one != other:
        return format_amount(name, one), format_amount(name, other)
    return texts


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: `1 task`, `3 tasks`, `1,000 tasks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_size_unit(text: str) -> bool:
    """Whether the text is a unit of bytes, like GiB."""
    return text.strip().lower() in _SIZE_UNITS


def resource_name(text: str) -> str:
    """Return the canonical name of a resource (`cpus` is `cpu`, `mem` is `memory`).

    Raises:
        SpecError: not a name (lower-case letter, then up to 62 of a-z 0-9 . _ / -).
    """
    name = text.strip().lower()
    name = _PLURALS.get(name, name)
    if not _RESOURCE_NAME.fullmatch(name):
        raise SpecError(
            f"request: '{shown(text)}' is not a resource name",
            hint="a lower-case letter, then at most 62 of a-z 0-9 . _ / -",
        )
    return name


def parse_amount(name: str, value: object, *, field: str = "") -> int:
    """Parse an amount of resource `name` to base units: `4`, `0.5`, `4cpu`, `500m` (cpu, gpu), `1.5GiB` (bytes), `2`
    (else).

    Args:
        name: canonical resource name; determines the unit.
        value: the input.
        field: its name in an error; the resource's name if empty.
    Raises:
        SpecError: not an amount of that resource, negative, too fine or too large.
    """
    field = field or name
    if name in BYTE_RESOURCES:
        return parse_size(value, field=field)
    number, unit = _number(_text(value, field, "an amount like 4"))
    milli = name in MILLI_RESOURCES
    if number is None or (unit and not (milli and unit == "m") and _PLURALS.get(unit, unit) != name):
        raise SpecError(f"{field}: '{shown(value)}' is not an amount of {name}", hint=f"write it like 4 or 4{name}")
    scale = 1 if milli and unit == "m" else 1000 if milli else 1
    finest = "1/1000" if milli else "one"
    largest = f"{(MAX_AMOUNT + 1) // (1000 if milli else 1)} {name}"
    return _checked(number, scale, value, field, finest=f"{finest} {name}", largest=largest)


# The templates and lists of many jobs repeat the same few amounts.
@lru_cache(maxsize=REMEMBERED)
def format_amount(name: str, amount: int) -> str:
    """Format an amount that `parse_amount` reads back to the same integer: `4`, `0.5`, `1.5GiB`. What is only counted
    beside a resource has its unit."""
    name = name if name == GPU_ISLAND else counted_as(name)
    if name in BYTE_RESOURCES:
        return format_size(amount)
    if name in MILLI_RESOURCES:
        return _plain(Decimal(amount) / 1000)
    return str(amount)


def _text(value: object, field: str, expected: str) -> str:
    """Return the number as text; a float as the shortest text that reads back as it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SpecError(f"{field}: expected {expected}, got {shown(value)}")
    text = shown(value) if isinstance(value, int) else str(value).strip()
    if len(text) > MAX_NUMBER_CHARS:
        raise SpecError(f"{field}: '{shown(value)}' is too long for a number")
    return text


def _unitless(value: str) -> str:
    return f"'{shown(value.strip())}' has no unit"


def _digits(text: str) -> str:
    return f"{Decimal(text):f}" if len(text) <= 9 else text


# A submission of many jobs repeats the same few durations and amounts.
@lru_cache(maxsize=REMEMBERED)
def _milliseconds(text: str) -> Fraction | int | None:
    """Parse a duration in lower case; None if it is not one."""
    exact = _EXACT_DURATION.fullmatch(text)
    if exact:
        return sum(int(count) * unit for count, unit in zip(exact.groups(), _EXACT_UNITS_MS, strict=True) if count)
    clock = _CLOCK.fullmatch(text)
    if clock:
        first, second, third = (int(part) if part else None for part in clock.groups())
        hours, minutes, seconds = (0, first, second) if third is None else (first, second, third)
        return _clock_ms(0, hours or 0, minutes or 0, seconds or 0, minutes_bounded=third is not None)
    days = _DAYS.fullmatch(text)
    if days:
        return _clock_ms(*(int(part or 0) for part in days.groups()), minutes_bounded=True)
    parts = _DURATION_PART.findall(text)
    if not parts or _DURATION_PART.sub("", text).strip():
        return None
    return sum((Fraction(n) * _UNIT_MS[unit] for n, unit in parts), Fraction(0))


def _clock_ms(days: int, hours: int, minutes: int, seconds: int, *, minutes_bounded: bool) -> int | None:
    if seconds >= 60 or (minutes_bounded and minutes >= 60):
        return None
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


@lru_cache(maxsize=REMEMBERED)
def _number(text: str) -> tuple[Fraction | None, str]:
    """Split `1.5GiB` into (number, unit in lower case); None if it does not begin with a number."""
    match = _NUMBER.fullmatch(text)
    return (Fraction(match.group(1)), match.group(2).lower()) if match else (None, "")


def _checked(number: Fraction, scale: int, value: object, field: str, *, finest: str, largest: str) -> int:
    amount, rest = divmod(number.numerator * scale, number.denominator)
    if amount < 0:
        raise SpecError(f"{field}: '{shown(value)}' is negative", hint="write a positive amount")
    if amount > MAX_AMOUNT:
        raise SpecError(f"{field}: '{shown(value)}' is out of range", hint=f"less than {largest}")
    if rest:
        raise SpecError(f"{field}: '{shown(value)}' is finer than {finest}")
    return amount


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
