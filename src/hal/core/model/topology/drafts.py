"""A topology while a file is read: what is declared so far, with the line of each declaration for errors.

Pure. Readers of all formats end here; the checks that all of them need are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.node_lists import expand_names, natural_key
from hal.core.model.topology.tree import (
    MAX_TREE_DOMAINS,
    MAX_TREE_NODES,
    OUTSIDE,
    Domain,
    Topology,
    check_levels,
)


class Place(NamedTuple):
    """Where something is written."""

    file: str
    line: int
    """From 1; 0: not known."""

    def error(self, message: str, hint: str = "") -> SpecError:
        """An error that begins with file and line."""
        return SpecError(f"{self}: {message}", hint=hint)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Declared(NamedTuple):
    """One domain."""

    name: str
    level: int
    parent: str
    """Name of the narrowest wider domain around it; '': none."""
    place: Place


def names_at(text: object, place: Place, field: str, most: int = MAX_TREE_NODES) -> list[str]:
    """The names of a list.

    Raises:
        SpecError: it is none; names file, line and field.
    """
    if not isinstance(text, str):
        raise place.error(f"{field}: {shown(text)} is not a list of names", "like n[001-128]")
    try:
        return expand_names(text, most)
    except SpecError as error:
        raise place.error(f"{field}: {error.message}", error.hint) from None


class Draft:
    """What a file has declared so far."""

    def __init__(self, levels: Sequence[str], place: Place) -> None:
        """
        Raises:
            SpecError: as `check_levels`.
        """
        try:
            self._levels = check_levels(levels, "levels")
        except SpecError as error:
            raise place.error(error.message, error.hint) from None
        self._place = place
        self._domains: dict[str, Declared] = {}
        self._nodes: dict[str, tuple[str, Place]] = {}

    def declare(self, domain: Declared) -> None:
        """Add a domain; the same one again changes nothing.

        Raises:
            SpecError: another has its name, or there are too many.
        """
        known = self._domains.setdefault(domain.name, domain)
        if (known.level, known.parent) != (domain.level, domain.parent):
            raise domain.place.error(
                f"'{shown(domain.name)}' is the name of two domains ({known.place})", "give one another name"
            )
        if len(self._domains) > MAX_TREE_DOMAINS:
            raise domain.place.error(f"more than {MAX_TREE_DOMAINS:,} domains")

    def put(self, nodes: Iterable[str], domain: str, place: Place) -> None:
        """Put nodes into a domain, which is the narrowest that they are in.

        Raises:
            SpecError: one is in another already, or there are too many.
        """
        for node in nodes:
            if node in self._nodes:
                other, before = self._nodes[node]
                line = f" (line {before.line})" if before.line else ""
                raise place.error(
                    f"node '{node}' is in '{shown(domain)}' and in '{shown(other)}'{line}",
                    "a node is in one domain of each level",
                )
            self._nodes[node] = (domain, place)
        if len(self._nodes) > MAX_TREE_NODES:
            raise place.error(f"more than {MAX_TREE_NODES:,} nodes")

    def finished(self) -> Topology:
        """The topology.

        Raises:
            SpecError: nothing is declared.
        """
        if not self._domains:
            raise self._place.error("it declares no domain", "see docs/topology.md")
        order = sorted(self._domains.values(), key=lambda one: (one.level, natural_key(one.name)))
        index = {one.name: at for at, one in enumerate(order)}
        return Topology(
            levels=self._levels,
            domains=tuple(Domain(one.name, one.level, index.get(one.parent, OUTSIDE)) for one in order),
            places={node: index[domain] for node, (domain, _) in self._nodes.items()},
        )


def refuse_unknown(key: str, known: Sequence[str], place: Place) -> NoReturn:
    """
    Raises:
        SpecError: always: the key is unknown; names the nearest.
    """
    import difflib  # imported only for an error, because it is slow to import

    near = difflib.get_close_matches(key.lower(), [one.lower() for one in known], n=1, cutoff=0.6)
    meant = next((one for one in known if near and one.lower() == near[0]), "")
    hint = f"did you mean '{meant}'?" if meant else f"known are {', '.join(known)}"
    raise place.error(f"unknown key '{shown(key)}'", hint)
