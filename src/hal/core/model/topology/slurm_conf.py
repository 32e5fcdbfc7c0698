"""Slurm's `topology.conf`: lines of `SwitchName=… Nodes=…`, or of `BlockName=… Nodes=…` and `BlockSizes=…`.

Pure. Names of parameters may be written in capitals or not; text behind `#` is left out; a line that ends in a
backslash goes on in the next. Source: topology.conf(5) of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from hal.core.model.errors import shown
from hal.core.model.topology.drafts import Place, refuse_unknown
from hal.core.model.topology.slurm_domains import Block, Switch, block_topology, check_name, tree_topology
from hal.core.model.topology.tree import Topology

_TREE_KEYS: Final = ("SwitchName", "Switches", "Nodes", "LinkSpeed")
_BLOCK_KEYS: Final = ("BlockName", "Nodes")
_SIZES: Final = "BlockSizes"
_WORD: Final = re.compile(r"""\s*([A-Za-z_]+)\s*=\s*("[^"]*"|\S+)(?=\s|$)""")
_UNREAD: Final = {
    "ringname": "rings are not read: see docs/topology.md for what is",
    "include": "the lines of another file are not read: put them into this one",
}


class _Line(NamedTuple):
    place: Place
    words: dict[str, str]
    """Values by parameter, in small letters."""
    spelled: dict[str, str]
    """How each was written."""


def read_conf(text: str, file: str) -> Topology:
    """
    Args:
        file: its name, for errors.
    Raises:
        SpecError: a mistake in it; names file and line.
    """
    switches: list[Switch] = []
    blocks: list[Block] = []
    sizes: tuple[int, ...] = ()
    sizes_place = start = Place(file, 0)
    for line in _lines(text, file):
        words, place = line.words, line.place
        if "switchname" in words:
            _check_keys(line, _TREE_KEYS)
            name = check_name(words["switchname"], "switch", place)
            switches.append(Switch(name, words.get("nodes"), words.get("switches"), place))
        elif "blockname" in words:
            _check_keys(line, (*_BLOCK_KEYS, _SIZES))
            blocks.append(Block(check_name(words["blockname"], "block", place), words.get("nodes"), place))
        elif "blocksizes" not in words:
            refuse_unknown(next(iter(line.spelled.values())), ("SwitchName", "BlockName", _SIZES), place)
        if "blocksizes" in words:
            if "blockname" not in words:
                _check_keys(line, (_SIZES,))
            if sizes:
                raise place.error("the block sizes are given twice", f"first on line {sizes_place.line}")
            sizes, sizes_place = _sizes(words["blocksizes"], place), place
    if switches and (blocks or sizes):
        both = max(switches[0].place, blocks[0].place if blocks else sizes_place)
        raise both.error("switches and blocks in one file", "a file is either a tree or made of blocks")
    if blocks or sizes:
        return block_topology(blocks, sizes, start, sizes_place)
    return tree_topology(switches, start)


def _lines(text: str, file: str) -> Iterator[_Line]:
    """Each line that has something.

    Raises:
        SpecError: a line that does not consist of `Key=Value`.
    """
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].rstrip()
        first = first if whole else number
        if line.endswith("\\"):
            whole += f"{line[:-1]} "
            continue
        whole, told = "", whole + line
        if told.strip():
            yield _words(told, Place(file, first))
    if whole.strip():
        yield _words(whole, Place(file, first))


def _words(line: str, place: Place) -> _Line:
    words: dict[str, str] = {}
    spelled: dict[str, str] = {}
    at = 0
    line = line.strip()
    while at < len(line):
        match = _WORD.match(line, at)
        if match is None:
            word = line[at:].split(maxsplit=1)[0]
            hint = _UNREAD.get(word.lower(), "a line has words like SwitchName=s1 Nodes=n[001-018]")
            raise place.error(f"'{shown(word)}' is not KEY=VALUE", hint)
        key = match[1].lower()
        if key in _UNREAD:
            raise place.error(f"'{match[1]}' is not read here", _UNREAD[key])
        if key in words:
            raise place.error(f"'{match[1]}' is twice in the line", "write it once")
        words[key], spelled[key] = match[2].strip('"'), match[1]
        at = match.end()
    return _Line(place, words, spelled)


def _check_keys(line: _Line, known: tuple[str, ...]) -> None:
    """
    Raises:
        SpecError: there is another than these.
    """
    allowed = {one.lower() for one in known}
    for key, spelled in line.spelled.items():
        if key not in allowed:
            refuse_unknown(spelled, known, line.place)


def _sizes(text: str, place: Place) -> tuple[int, ...]:
    parts = text.split(",")
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,9}", part):
            raise place.error(f"BlockSizes: '{shown(part)}' is not a number", "like BlockSizes=18,36")
    return tuple(map(int, parts))
