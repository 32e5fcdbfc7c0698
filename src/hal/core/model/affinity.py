"""Affinity: terms by which jobs run together with, or apart from, work with a label.

Pure. A term is written `KEY[=VALUE]@LEVEL`. Labels that terms may name have the key `app`, or one that begins with
`app/`: they tell the engine's classes apart, and all other labels cost it nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hal.core.model.errors import SpecError, shown
from hal.core.model.topology.tree import check_level_name

NODE_LEVEL: Final = "node"
"""The level whose domains are single nodes."""
FOLLOWED: Final = "app"
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9])?")
MAX_TERMS: Final = 8
"""Terms of each kind that one job may have."""
MAX_WEIGHT: Final = 100
"""Of a preferred term, and where it has none: as much as lies between the worst and the best node of a placement."""


class Affinity(NamedTuple):
    """One term; value is never empty once it was read with the labels of its job."""

    key: str
    value: str
    level: str

    @property
    def label(self) -> str:
        """What it names."""
        return f"{self.key}={self.value}"


def is_followed(key: str) -> bool:
    """Whether terms may name labels of this key."""
    return key == FOLLOWED or key.startswith(f"{FOLLOWED}/")


def followed(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The labels that terms may name, as `KEY=VALUE`, in order."""
    return tuple(f"{key}={value}" for key, value in sorted(labels.items()) if is_followed(key)) if labels else ()


def affinity_of(text: str, labels: Mapping[str, str], field: str) -> Affinity:
    """A term from `KEY[=VALUE]@LEVEL`; without a value it is that of the job's own label.

    Raises:
        SpecError: names the field and what to write.
    """
    named, mark, level = text.rpartition("@")
    key, _, value = named.partition("=")
    if not mark or not key or not level:
        raise SpecError(
            f"{field}: '{shown(text)}' is not KEY[=VALUE]@LEVEL", hint="app=web@rack, or app@node for its own label"
        )
    if not is_followed(key):
        raise SpecError(
            f"{field}: jobs are not placed by label '{shown(key)}'",
            hint=f"by {FOLLOWED}, or by one that begins with {FOLLOWED}/",
        )
    if not _LABEL.fullmatch(key) or ("=" in named and not _LABEL.fullmatch(value)):
        raise SpecError(f"{field}: '{shown(named)}' is no label", hint="letters, digits and _ . / - inside")
    if level != NODE_LEVEL:
        check_level_name(level, field)
    if "=" not in named and key not in labels:
        raise SpecError(
            f"{field}: '{shown(text)}' means the job's own label '{shown(key)}', and it has none",
            hint=f"write {shown(key)}=VALUE@{shown(level)}, or give it the label (--label {shown(key)}=VALUE)",
        )
    return Affinity(key, value if "=" in named else labels[key], level)


class PreferredAffinity(NamedTuple):
    """A term that a job would rather have met; weight: 1 to MAX_WEIGHT."""

    term: Affinity
    weight: int


def preferred_of(text: str, labels: Mapping[str, str], field: str) -> PreferredAffinity:
    """A preferred term from `KEY[=VALUE]@LEVEL[:WEIGHT]`.

    Raises:
        SpecError: names the field and what to write.
    """
    named, mark, level = text.rpartition("@")
    level, weighed, weight = level.partition(":")
    if weighed and not (weight.isascii() and weight.isdigit() and 1 <= int(weight[:4]) <= MAX_WEIGHT):
        raise SpecError(
            f"{field}: '{shown(text)}' has no weight from 1 to {MAX_WEIGHT} behind ':'", hint="app=web@rack:50"
        )
    term = affinity_of(f"{named}{mark}{level}", labels, field)
    return PreferredAffinity(term, int(weight) if weighed else MAX_WEIGHT)


def level_of(text: str) -> str:
    """The level of a term or a preferred one, as it is written."""
    return text.rpartition("@")[2].partition(":")[0]


def check_preferred(terms: Sequence[str], labels: Mapping[str, str], field: str) -> None:
    """Check all preferred terms of a kind.

    Raises:
        SpecError: names the field and the term.
    """
    if len(terms) > MAX_TERMS:
        raise SpecError(f"{field}: {len(terms)} terms; at most {MAX_TERMS} are allowed")
    read = [preferred_of(text, labels, field).term for text in terms]
    for text, term in zip(terms, read, strict=True):
        if read.count(term) > 1:
            raise SpecError(f"{field}: '{shown(text)}' is named twice")


def check_terms(terms: Sequence[str], labels: Mapping[str, str], field: str) -> None:
    """Check all terms of a kind.

    Raises:
        SpecError: names the field and the term.
    """
    if len(terms) > MAX_TERMS:
        raise SpecError(f"{field}: {len(terms)} terms; at most {MAX_TERMS} are allowed")
    for text in terms:
        affinity_of(text, labels, field)
        if terms.count(text) > 1:
            raise SpecError(f"{field}: '{shown(text)}' is named twice")
