"""Dependencies: which jobs a job waits for, how people write that, and the one form in which it is kept.

Pure. A job's dependencies are a list of which all must be met (AND); an entry is one dependency, or several of which
one is enough (`any_of`, OR). As text: `afterok:12 & (afterany:13 | afternotok:14)`; Slurm's `,` and `?` are read as `&`
and `|`. There is no deeper nesting: any expression can be written as an AND of ORs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.errors import SpecError, shown

MAX_DEPENDENCIES: Final = 10_000
"""Dependencies of one job, counting each one inside `any_of`."""


class DependencyKind(StrEnum):
    """When a dependency is met.

    `after`: the other job has started, or has ended without starting. `afterany`: it has ended. `afterok`: all its
    tasks succeeded. `afternotok`: it has ended, and not all its tasks succeeded. `aftercorr`: task i of this array
    waits for the success of task i of the other. `singleton`: every earlier job of the same name and user has ended.
    """

    AFTER = "after"
    AFTERANY = "afterany"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"
    AFTERCORR = "aftercorr"
    SINGLETON = "singleton"


class Failed(StrEnum):
    """What happens to a job whose dependency can no longer be met: it is cancelled, held, or runs anyway."""

    CANCEL = "cancel"
    HOLD = "hold"
    RUN = "run"


class Dependency(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """This job waits for another job (`job` and `kind`), or for one of several (`any_of`)."""

    job: Annotated[str, Meta(description="job id, or the name of a job in the same submission")] = ""
    kind: DependencyKind = DependencyKind.AFTEROK
    any_of: Annotated[tuple[Dependency, ...], Meta(description="one of these is enough")] = ()

    @property
    def alternatives(self) -> tuple[Dependency, ...]:
        """The dependencies of which one must be met: itself, if there is no choice."""
        return self.any_of or (self,)

    def __str__(self) -> str:
        """The form in which people write it."""
        if self.any_of:
            return f"({' | '.join(map(str, self.any_of))})"
        return self.kind.value if self.kind is DependencyKind.SINGLETON else f"{self.kind}:{self.job}"


def dependencies_text(dependencies: Iterable[Dependency]) -> str:
    """Format dependencies: `afterok:12 & (afterany:13 | afternotok:14)`."""
    return " & ".join(map(str, dependencies))


def each_dependency(dependencies: Iterable[Dependency]) -> Iterator[Dependency]:
    """Iterate over every single dependency, including those inside `any_of`."""
    for entry in dependencies:
        yield from entry.alternatives


def canonical_dependencies(dependencies: tuple[Dependency, ...]) -> tuple[Dependency, ...]:
    """Return the canonical form: a choice of one becomes that one, and none is repeated within a choice.

    Raises:
        SpecError: an entry that is neither a dependency nor a choice, or more than `MAX_DEPENDENCIES`.
    """
    count = sum(len(entry.alternatives) for entry in dependencies)
    if count > MAX_DEPENDENCIES:
        raise SpecError(f"dependencies: {count}; at most {MAX_DEPENDENCIES} are allowed")
    out = []
    for entry in dependencies:
        if not entry.any_of:
            out.append(entry)
            continue
        if entry.job or entry.kind is not DependencyKind.AFTEROK:
            raise SpecError(
                "dependencies: an entry with any_of also has job or kind",
                hint="put them into any_of, or into another entry",
            )
        if any(inner.any_of for inner in entry.any_of):
            raise SpecError(
                "dependencies: any_of inside any_of", hint="use one list: one of all its entries must be met"
            )
        members = tuple(dict.fromkeys(entry.any_of))
        out.append(members[0] if len(members) == 1 else Dependency(any_of=members))
    return tuple(out)


# ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_TOKEN: Final = re.compile(r"\s*(?:([&,|?()])|([^\s&,|?()]+))")
_IDS: Final = re.compile(r"[0-9]+(?::[0-9]+)+")
_KINDS: Final = {kind.value: kind for kind in DependencyKind}
_EXAMPLE: Final = "write it like afterok:12 & (afterany:13 | afternotok:14)"


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """Parse terms joined by `&` (or `,`), each one dependency or a choice in brackets.

    `42` is `afterok:42`; `afterok:12:13` names two jobs by id, and means both. A text that joins only by `|` (or `?`)
    is one choice. `&` and `|` are never mixed without brackets.

    Raises:
        SpecError: an unknown kind, a missing bracket, or mixed operators; names the position.
    """
    tokens = _tokens(text)
    parser = _Parser(text, tokens)
    return canonical_dependencies(tuple(parser.whole()))


def _tokens(text: str) -> list[str]:
    stripped = text.rstrip()
    found, at = [], 0
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        assert match is not None  # anything that is neither operator nor space is a word
        found.append(_SAME.get(match.group(1), match.group(1)) if match.group(1) else match.group(2))
        at = match.end()
    return found


_SAME: Final = {",": "&", "?": "|"}


class _Parser:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0

    def whole(self) -> list[Dependency]:
        found = self._group()
        joined = ""
        alone = len(found) == 1
        while self._at < len(self._tokens):
            operator = self._take()
            if operator not in ("&", "|"):
                raise self._error(f"'{shown(operator)}' found where & or | is expected")
            if joined and operator != joined:
                raise self._error("& and | are mixed", "put what belongs together in brackets: a & (b | c)")
            joined = operator
            group = self._group()
            alone = alone and len(group) == 1
            found += group
        if joined != "|":
            return found
        if not alone or any(entry.any_of for entry in found):
            raise self._error("| can only join single jobs", "write (a | b) & (a | c) for a | (b & c)")
        return [Dependency(any_of=tuple(found))]

    def _group(self) -> list[Dependency]:
        if self._peek() != "(":
            return self._term()
        self._take()
        members: list[Dependency] = []
        while True:
            term = self._term()
            if len(term) > 1:
                raise self._error(
                    "several ids in one term of a choice", "name them separately: afterok:12 | afterok:13"
                )
            members += term
            token = self._take()
            if token == ")":
                return [Dependency(any_of=tuple(members))]
            if token != "|":
                found = f"'{shown(token)}' found where | or ) is expected" if token else "a bracket is not closed"
                raise self._error(found, "inside of brackets only | is allowed")

    def _term(self) -> list[Dependency]:
        word = self._take()
        if word in ("", "&", "|", "(", ")"):
            raise self._error(f"a job is expected before '{word}'" if word else "a job is expected at the end")
        if word == DependencyKind.SINGLETON:
            return [Dependency(kind=DependencyKind.SINGLETON)]
        name, colon, job = word.partition(":")
        if not colon:
            return [Dependency(job=word)]
        kind = _KINDS.get(name)
        if kind is None or not job or kind is DependencyKind.SINGLETON:
            kinds = ", ".join(kind for kind in _KINDS if kind != DependencyKind.SINGLETON)
            raise SpecError(
                f"dependencies: '{shown(word)}' is not KIND:JOB", hint=f"the kinds are {kinds}; singleton has no job"
            )
        return [Dependency(job=one, kind=kind) for one in (job.split(":") if _IDS.fullmatch(job) else (job,))]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, what: str, hint: str = _EXAMPLE) -> SpecError:
        return SpecError(f"dependencies: '{shown(self._text)}': {what}", hint=hint)
