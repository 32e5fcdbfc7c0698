"""On how many nodes of each domain a shape fits whose nodes must be in one: kept as nodes change.

Pure. For such a shape S_FIT and S_EVER are the most of any one domain of its level, so that comparing them with the
nodes of a gang still says whether it fits. A domain that had the most and loses a node may be the last one that had as
many: then the most is one less, and how many have that is counted when one of them loses a node in turn, O(domains of
the level). Everything else is O(1) a node and shape.
"""

from __future__ import annotations

from hal.core.kernels.structures.jit import inlined, inner
from hal.core.kernels.structures.layout import (
    LISTED_FIRST,
    LISTED_LAST,
    S_EVER,
    S_FIT,
    S_WITHIN,
    WITHIN_AT,
    WITHIN_EVER_AT,
    WITHIN_LEVEL,
)
from hal.core.kernels.structures.memory import Tables


@inlined
def level_within(t: Tables, shape: int) -> int:
    """The level in one domain of which all nodes of a shape must be; -1 where they need not. Of one that is unknown
    no node is allowed."""
    line = t.shapes[shape, S_WITHIN] - 1
    return int(t.within[line, WITHIN_LEVEL]) if line >= 0 else -1


@inlined
def first_domain(t: Tables, level: int) -> int:
    """Where the domains of a level begin in `listed`."""
    return int(t.level_domains[level, LISTED_FIRST])


@inlined
def last_domain(t: Tables, level: int) -> int:
    """Behind the last one."""
    return int(t.level_domains[level, LISTED_LAST])


@inner
def _count_at(t: Tables, line: int, most: int, ever: bool) -> int:
    """In how many domains of its level the shape of a line fits, or ever could, on so many nodes."""
    level = t.within[line, WITHIN_LEVEL]
    count = 0
    for place in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[place]
        count += int((t.domain_ever[line, domain] if ever else t.domain_fit[line, domain]) == most)
    return count


@inner
def lose_fit(t: Tables, node: int, shape: int) -> None:
    """The shape of a line no longer fits on a node."""
    line = t.shapes[shape, S_WITHIN] - 1
    domain = t.domain_of[t.within[line, WITHIN_LEVEL], node] - 1
    there = t.domain_fit[line, domain]
    if there == t.shapes[shape, S_FIT]:
        if t.within[line, WITHIN_AT] == 0:
            t.within[line, WITHIN_AT] = _count_at(t, line, there, False)
        t.within[line, WITHIN_AT] -= 1
        if t.within[line, WITHIN_AT] == 0:
            t.shapes[shape, S_FIT] = there - 1
    t.domain_fit[line, domain] = there - 1


@inner
def gain_fit(t: Tables, node: int, shape: int) -> None:
    """The shape of a line fits on a node, where it did not."""
    line = t.shapes[shape, S_WITHIN] - 1
    domain = t.domain_of[t.within[line, WITHIN_LEVEL], node] - 1
    there = t.domain_fit[line, domain] + 1
    t.domain_fit[line, domain] = there
    if there > t.shapes[shape, S_FIT]:
        t.shapes[shape, S_FIT] = there
        t.within[line, WITHIN_AT] = 1
    elif there == t.shapes[shape, S_FIT] and t.within[line, WITHIN_AT] != 0:
        t.within[line, WITHIN_AT] += 1


@inner
def lose_ever(t: Tables, node: int, shape: int) -> None:
    """The shape of a line could no longer fit on a node when it is empty."""
    line = t.shapes[shape, S_WITHIN] - 1
    domain = t.domain_of[t.within[line, WITHIN_LEVEL], node] - 1
    there = t.domain_ever[line, domain]
    if there == t.shapes[shape, S_EVER]:
        if t.within[line, WITHIN_EVER_AT] == 0:
            t.within[line, WITHIN_EVER_AT] = _count_at(t, line, there, True)
        t.within[line, WITHIN_EVER_AT] -= 1
        if t.within[line, WITHIN_EVER_AT] == 0:
            t.shapes[shape, S_EVER] = there - 1
    t.domain_ever[line, domain] = there - 1


@inner
def gain_ever(t: Tables, node: int, shape: int) -> None:
    """The shape of a line could fit on a node when it is empty, where it could not."""
    line = t.shapes[shape, S_WITHIN] - 1
    domain = t.domain_of[t.within[line, WITHIN_LEVEL], node] - 1
    there = t.domain_ever[line, domain] + 1
    t.domain_ever[line, domain] = there
    if there > t.shapes[shape, S_EVER]:
        t.shapes[shape, S_EVER] = there
        t.within[line, WITHIN_EVER_AT] = 1
    elif there == t.shapes[shape, S_EVER] and t.within[line, WITHIN_EVER_AT] != 0:
        t.within[line, WITHIN_EVER_AT] += 1


@inner
def begin_domains(t: Tables, shape: int) -> None:
    """Count in `domain_there`, from where the shape of a line fits now on."""
    line = t.shapes[shape, S_WITHIN] - 1
    level = t.within[line, WITHIN_LEVEL]
    for k in range(first_domain(t, level), last_domain(t, level)):
        t.domain_there[t.listed[k]] = t.domain_fit[line, t.listed[k]]


@inner
def add_to_domain(t: Tables, shape: int, node: int) -> int:
    """Count one more node for the shape of a line; how many its domain has now."""
    domain = t.domain_of[t.within[t.shapes[shape, S_WITHIN] - 1, WITHIN_LEVEL], node] - 1
    t.domain_there[domain] += 1
    return int(t.domain_there[domain])


@inner
def forget_fits(t: Tables, shape: int) -> None:
    """Begin to count the shape of a line anew: it fits nowhere."""
    line = t.shapes[shape, S_WITHIN] - 1
    for domain in range(t.domain_fit.shape[1]):
        t.domain_fit[line, domain] = 0
        t.domain_ever[line, domain] = 0
    t.shapes[shape, S_FIT] = 0
    t.shapes[shape, S_EVER] = 0
    t.within[line, WITHIN_AT] = 0
    t.within[line, WITHIN_EVER_AT] = 0
