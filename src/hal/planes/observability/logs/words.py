"""What people search for, as an expression of SQLite's FTS5 and a check of the text of what it finds. Pure.

Words are parts of a text that only have letters and digits; case and accents do not matter. What is between quotation
marks must be there as it is written, and so must a word with signs in it (`cuda_error`, `/data/part-7`): the index has
only single words, so each of them is looked up and the text itself is checked then.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from hal.core.model import SpecError, shown

MAX_QUERY_CHARS: Final = 1_000
MAX_TERMS: Final = 32
TAG: Final = "\ue000"
"""A character for private use, which no text keeps: by it, tags (`job 42`) are words of the index that no text has."""
_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
HOW: Final = 'words that must all be there, "a phrase", word*, -word, one OR other'


class Search(NamedTuple):
    """What lines must have."""

    wanted: tuple[tuple[str, ...], ...] = ()
    """Expressions of the index: of each group, one must match."""
    unwanted: tuple[str, ...] = ()
    """Expressions that must not match."""
    texts: tuple[tuple[str, ...], ...] = ()
    """Texts, in small letters: of each group, one must be in the line. Of groups of which every one is more than a
    word."""
    without: tuple[str, ...] = ()
    """Texts, in small letters, that must not be in the line."""

    def admits(self, text: str) -> bool:
        """Whether a line that the index has found has the texts, too."""
        if not (self.texts or self.without):
            return True
        small = uncoloured(text).casefold()
        return all(any(one in small for one in group) for group in self.texts) and not any(
            one in small for one in self.without
        )


class _Term(NamedTuple):
    expression: str
    text: str
    """What the line must have besides; empty: nothing."""


def parse_search(query: str) -> Search:
    """Read what a person has typed.

    Raises:
        SpecError: too long, an open quotation mark, or nothing in it that could be searched.
    """
    if len(query) > MAX_QUERY_CHARS:
        raise SpecError(f"the search is longer than {MAX_QUERY_CHARS} characters")
    groups: list[list[_Term]] = []
    unwanted: list[_Term] = []
    joined = False
    count = 0
    for text, quoted, negated in _parts(query):
        if text == "OR" and not (quoted or negated):
            joined = bool(groups)
            continue
        count += 1
        if count > MAX_TERMS:
            raise SpecError(f"the search has more than {MAX_TERMS} words")
        term = _term(text, quoted)
        if negated:
            unwanted.append(term)
        elif joined:
            groups[-1].append(term)
        else:
            groups.append([term])
        joined = False
    return Search(
        tuple(tuple(term.expression for term in group) for group in groups),
        tuple(term.expression for term in unwanted if not term.text),
        tuple(tuple(term.text for term in group) for group in groups if all(term.text for term in group)),
        tuple(term.text for term in unwanted if term.text),
    )


def expression_of(search: Search, tags: list[tuple[str, ...]]) -> str:
    """The expression for the index; '' if every line matches.

    Args:
        tags: of each group, a line must have one.
    Raises:
        SpecError: it only says what must not be there.
    """
    groups = [tuple(f'"{TAG}{tag}"' for tag in group) for group in tags] + list(search.wanted)
    if not groups:
        if search.unwanted or search.without:
            raise SpecError("the search only has words that must not be there", hint=f"it takes {HOW}")
        return ""
    wanted = " AND ".join(f"({' OR '.join(group)})" for group in groups)
    return f"({wanted}) NOT ({' OR '.join(search.unwanted)})" if search.unwanted else wanted


def indexable(text: str) -> str:
    """A text as the index gets it: nothing in it can be taken for a tag, and colours are no part of words."""
    text = uncoloured(text)
    return text if text.isascii() or TAG not in text else text.replace(TAG, " ")


def uncoloured(text: str) -> str:
    """Without the sequences by which a terminal changes colours or moves (ECMA-48, CSI)."""
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


def _parts(query: str) -> list[tuple[str, bool, bool]]:
    """The parts of a query: text, whether it was between quotation marks, whether it must not be there."""
    found: list[tuple[str, bool, bool]] = []
    at = 0
    while at < len(query):
        if query[at].isspace():
            at += 1
            continue
        negated = query[at] == "-" and at + 1 < len(query) and not query[at + 1].isspace()
        at += negated
        if query[at] == '"':
            end = query.find('"', at + 1)
            if end < 0:
                raise SpecError("the search has a quotation mark that is not closed", hint=f"it takes {HOW}")
            found.append((query[at + 1 : end], True, negated))
            at = end + 1
            continue
        end = at
        while end < len(query) and not query[end].isspace():
            end += 1
        found.append((query[at:end], False, negated))
        at = end
    return found


def _term(text: str, quoted: bool) -> _Term:
    prefix = not quoted and text.endswith("*")
    bare = text[:-1] if prefix else text
    words = _words(bare)
    if not words:
        raise SpecError(f"'{shown(text)}' has no letter and no digit to search for", hint=f"it takes {HOW}")
    expressions = [f'"{word}"' for word in words]
    if prefix and bare[-1:] == words[-1][-1:]:
        expressions[-1] += " *"
    alone = len(words) == 1 and words[0] == bare
    return _Term(
        f"({' AND '.join(expressions)})" if len(words) > 1 else expressions[0], "" if alone else bare.casefold()
    )


def _words(text: str) -> list[str]:
    """As the index splits a text: at whatever is neither letter, digit nor mark."""
    split = "".join(char if unicodedata.category(char)[0] in "LNM" else " " for char in text)
    return split.split()
