"""A set of named resource amounts: the request per node, the capacity of a node, the content of an allocation.

Pure and immutable. Amounts are integers in base units (see `units`); names are sorted, zero amounts are dropped, so
equal sets are equal values with equal hashes.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import TypeVar, overload

from hal.core.model.errors import SpecError, shown
from hal.core.model.units import format_amount, is_size_unit, parse_amount, resource_name

T = TypeVar("T")

MAX_RESOURCES = 64
"""How many resources one request or node may name."""


class Resources(Mapping[str, int]):
    """Amounts by canonical resource name, in base units."""

    __slots__ = ("_amounts", "says_cpu")

    def __init__(self, amounts: Mapping[str, int] | None = None, *, says_cpu: bool | None = None) -> None:
        """Args:
        amounts: in base units; zeros are dropped.
        says_cpu: whether a person has written how much cpu, if only 0; None: no person has written this.
        """
        self._amounts: dict[str, int] = {name: n for name, n in sorted((amounts or {}).items()) if n}
        self.says_cpu = says_cpu

    @classmethod
    def parse(cls, value: object, *, field: str = "request") -> Resources:
        """Parse a mapping `{'cpu': 4, 'memory': '1.5GiB'}` or text `'cpu=4,memory=1.5GiB'` or `'4cpu'`.

        Raises:
            SpecError: a name or amount is malformed, or a resource is named twice.
        """
        if isinstance(value, Resources):
            return value
        if isinstance(value, str):
            value = _pairs(value, field)
        if not isinstance(value, (dict, Mapping)):
            raise SpecError(f"{field}: expected a table like {{cpu = 4, memory = '2GiB'}}, got {shown(value)}")
        if len(value) > MAX_RESOURCES:
            raise SpecError(f"{field}: names {len(value)} resources; at most {MAX_RESOURCES} are allowed")
        amounts: dict[str, int] = {}
        for key, amount in value.items():
            name = resource_name(str(key))
            if name in amounts:
                raise SpecError(f"{field}: '{name}' is given twice")
            amounts[name] = parse_amount(name, amount, field=f"{field}.{name}")
        return cls(amounts, says_cpu="cpu" in amounts)

    def plain(self) -> dict[str, str]:
        """The form that people write: `{'cpu': '4', 'memory': '1.5GiB'}`."""
        plain = {name: format_amount(name, n) for name, n in self._amounts.items()}
        return {"cpu": "0", **plain} if self.says_cpu and "cpu" not in plain else plain

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @overload
    def get(self, key: str, /) -> int | None: ...
    @overload
    def get(self, key: str, default: int | T, /) -> int | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Without an exception where it is not named, as a Mapping's own has it: most requests name no GPU."""
        return self._amounts.get(key, default)

    def items(self) -> ItemsView[str, int]:
        """At once: a Mapping's own looks each of them up."""
        return self._amounts.items()

    def __hash__(self) -> int:
        return hash(tuple(self._amounts.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __str__(self) -> str:
        return ",".join(f"{name}={text}" for name, text in self.plain().items())

    def __repr__(self) -> str:
        return f"Resources({str(self)!r})"


def _pairs(text: str, field: str) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, amount = part.partition("=")
        if not equals:
            digits = len(part) - len(part.lstrip("0123456789."))
            name, amount = part[digits:], part[:digits]
            if not digits or not name:
                raise SpecError(f"{field}: '{shown(part)}' is not NAME=AMOUNT", hint="write it like cpu=4,memory=2GiB")
            if is_size_unit(name):
                raise SpecError(f"{field}: '{shown(part)}' does not name a resource", hint=f"write memory={part}")
        key = resource_name(name)
        if key in pairs:
            raise SpecError(f"{field}: '{key}' is given twice")
        pairs[key] = amount
    return pairs
