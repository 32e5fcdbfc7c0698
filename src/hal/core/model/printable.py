r"""Make foreign text safe to show in a terminal, a log or a picture.

Pure. Characters that control a terminal, change the order or the end of a line, or are invisible are written as escapes
(`\x1b`, `\u202e`); letters, marks and signs of every script are kept. A joiner or a variation selector is kept where a
script or an emoji needs it, and is escaped where it only hides something. Sources: ECMA-48 (C0, C1), UAX 9 (bidi
controls), UTS 39 and RFC 5892, appendix A (joiners).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

_JOINERS: Final = "\u200c\u200d\u180e"
_SELECTORS: Final = "\ufe00-\ufe0f\u180b-\u180d\u180f\U000e0100-\U000e01ef"
_NEVER: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f"  # order, ends of lines, invisible operators
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u200b\u3164\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"  # not to be seen
    "\ud800-\udfff"  # half a pair: a byte that was no text
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # format controls, tags
)
_VIRAMA: Final = 9
"""Combining class of the signs after which a joiner is part of a word's spelling."""
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@cache
def _odd() -> re.Pattern[str]:
    """What is escaped, or is a joiner or selector; compiled when a text first needs it."""
    return re.compile(f"[{_NEVER}{_JOINERS}{_SELECTORS}]")


@cache
def _unseen() -> re.Pattern[str]:
    """Joiners and selectors."""
    return re.compile(f"[{_JOINERS}{_SELECTORS}]")


def printable(text: str, *, lines: bool = False) -> str:
    """Escape everything in a text that acts on a terminal or hides something.

    Args:
        lines: keep line ends and tabs.
    """
    if text.isascii() and text.isprintable():
        return text
    return _odd().sub(lambda found: _shown(found, lines), text)


def printable_json(text: str) -> str:
    """JSON that says the same, with what acts or hides in its texts as `\\u` escapes; ends of lines stay."""
    if text.isascii() and text.isprintable():
        return text
    return _odd().sub(_escaped_in_json, text)


def _shown(found: re.Match[str], lines: bool) -> str:
    char = found[0]
    if (lines and char in "\n\t") or _belongs(found):
        return char
    code = ord(char)
    return _NAMED.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _escaped_in_json(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\n" or _belongs(found):
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _belongs(found: re.Match[str]) -> bool:
    """Whether a joiner or selector is where its text needs it."""
    char, text, at = found[0], found.string, found.start()
    if not _unseen().match(char) or not at:
        return False
    before, after = text[at - 1], text[at + 1 : at + 2]
    if char in _JOINERS:
        if unicodedata.combining(before) == _VIRAMA:
            return True
        # The emoji variation selector may stand between, as in the emoji of a heart on fire.
        return _carries(before) and _carries(after)
    if before in "0123456789#*":
        return after == "\u20e3"  # a keycap
    return _carries(before) and not _unseen().match(before)


def _carries(char: str) -> bool:
    return char > "\x9f" and char not in _JOINERS and (char == "\ufe0f" or not _odd().match(char))
