"""Text that cannot act: everything that steers, reorders or hides is written as an escape, all else is kept whole."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model.printable import printable, printable_json
from hal.core.model.text import plain_from_text, yaml_from_plain

HEART_ON_FIRE = "\u2764\ufe0f\u200d\U0001f525"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b]0;PWNED\x07", "\\x1b]0;PWNED\\x07"),
        ("a\nb\tc\rd\x7f", "a\\nb\\tc\\rd\\x7f"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\u2066x\u2069\u061c\u200e", "\\u2066x\\u2069\\u061c\\u200e"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\ufeffroot\u200b\u2060\xad", "\\ufeffroot\\u200b\\u2060\\xad"),
        ("ro\u200dot r\u200coot \u200d", "ro\\u200dot r\\u200coot \\u200d"),
        ("a\ufe0fb", "a\\ufe0fb"),
        ("\u4e2d\ufe00\ufe01", "\u4e2d\ufe00\\ufe01"),
        ("x\U000e0041\U000e0042", "x\\U000e0041\\U000e0042"),
        ("\udc9b\ud83d", "\\udc9b\\ud83d"),
        ("\u3164\uffa0\u034f", "\\u3164\\uffa0\\u034f"),
        ("\ufff9\ufffb", "\\ufff9\\ufffb"),
    ],
)
def test_what_acts_or_hides_is_escaped(raw: str, shown: str) -> None:
    """(M1) Control characters, bidi controls, ends of lines, what is not seen, tags, halves of pairs."""
    assert printable(raw) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain text, {[(\\x1b)]} 100 %",
        "Grüße, naïve façade, Žluťoučký kůň, Ελληνικά, Русский",
        "中文 日本語 한국어 ﾊﾝｶｸ",
        "עברית العربية ٣٫١٤",
        "می\u200cخواهم",
        "क्\u200dष श्री \u0d28\u0d4d\u200d",
        "ไทย བོད་ ខ្មែរ",
        f"{HEART_ON_FIRE} {FAMILY} 1\ufe0f\u20e3 \u2600\ufe0f 🇫🇷",
        "e\u0301 o\u0308 \ufffd \xa0€ ─│└ → …",
    ],
)
def test_ordinary_text_of_any_script_is_kept_whole(text: str) -> None:
    """Persian words need a joiner, Hindi conjuncts too, emoji of several parts as well."""
    assert printable(text) == text
    assert printable_json(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_safety_nothing_that_acts_is_left(text: str) -> None:
    """(M1) Whatever the text: no control, no bidi control, no separator of lines, no half of a pair."""
    shown = printable(text)
    for char in shown:
        kind = unicodedata.category(char)
        assert kind not in ("Cc", "Cs", "Zl", "Zp"), hex(ord(char))
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert printable(shown) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_safety_json_says_the_same(text: str) -> None:
    """Escapes of JSON only: what is read back is what was written, halves of pairs too, with and without layout."""
    for indent in (None, 2):
        written = printable_json(json.dumps({"key": text, text: [1]}, ensure_ascii=False, indent=indent))
        assert json.loads(written) == {"key": text, text: [1]}
        assert printable(written, lines=True) == written


@pytest.mark.parametrize("text", ["\x9b31m", "a\u202eb", "\u2066", "\u200b", "\U000e0041", "ñ\x1b[2J", "中\u202e文"])
def test_yaml_holds_nothing_that_acts(text: str) -> None:
    """(M1) It is written in escapes, and read back to the same."""
    written = yaml_from_plain({"a": text, text: 1})
    assert printable(written, lines=True) == written
    assert plain_from_text(written, kind="yaml") == {"a": text, text: 1}


def test_yaml_keeps_letters() -> None:
    """Where nothing acts, no escapes."""
    assert yaml_from_plain({"name": "Grüße 中文"}) == "name: Grüße 中文\n"
