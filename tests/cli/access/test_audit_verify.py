"""`hal audit verify`: files wherever they lie, heads that were kept elsewhere, exit codes, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json
from tests.rest.test_audit_chain import edit, files_of, written

Hal = Callable[..., Ran]


def test_a_copied_log_is_verified_without_hal(tmp_path: Path, hal: Hal) -> None:
    """Intact up to the last entry and its time; the head is in it; exit code 0."""
    head = written(tmp_path, 8)
    ran = hal("audit", "verify", tmp_path / "audit", "--head", head.text)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "intact up to entry 8 of 1970-01-01 00:00:01 UTC",
        f"head {head.text} is in the log",
    ]


def test_the_line_that_was_changed_is_named_with_exit_code_1(tmp_path: Path, hal: Hal) -> None:
    """Its file, its line, its entry; and up to where all is well."""
    written(tmp_path, 8, users=("ada",))
    (file,) = files_of(tmp_path, "user-ada")
    edit(file, lambda lines: lines.__setitem__(4, lines[4].replace(b"201", b"403")))
    ran = hal("audit", "verify", tmp_path / "audit")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{file.name} line 5: changed: user-ada: line 5 (entry 5)",
        "intact up to entry 4 of 1970-01-01 00:00:01 UTC",
    ]


def test_for_programs_it_is_one_value(tmp_path: Path, hal: Hal) -> None:
    """As JSON, of a single file: its links hold, and its end nobody knows."""
    written(tmp_path, 8, users=("ada",))
    found = json.loads(hal("audit", "verify", *files_of(tmp_path, "user-ada"), "--json").out)
    assert (found["intact"], found["lines"], found["head"], found["findings"]) == (True, 8, "", [])


def test_the_log_of_this_home_is_compared_with_the_heads_in_the_store(hal_home: Path, serve: Serve, hal: Hal) -> None:
    """The store knows a head that the files have not: they were replaced."""
    (hal_home / "log").mkdir()
    written(hal_home / "log", 8)
    kept = {"controller": str(hal_home), "number": 7, "at_ms": 1, "through": 90, "head": f"7:{'a' * 64}"}
    other = kept | {"controller": "elsewhere:/x", "head": f"9:{'b' * 64}"}
    serve(lambda asked: as_json(kept | {"kept": [other, kept]}))
    ran = hal("audit", "verify")
    assert ran.code == 1
    assert ran.out.splitlines()[0] == f"head: the log ends with checkpoint 1, before the head 7:{'a' * 64}"


@pytest.mark.parametrize(("words", "code"), [(("--head", "x"), 2), (("nowhere",), 3)])
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], code: int, hal: Hal) -> None:
    """No head; no such file."""
    ran = hal("audit", "verify", *words)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")


def test_the_head_is_one_word_for_programs_and_people(serve: Serve, hal: Hal) -> None:
    """On standard output nothing else, so that it can be stored."""
    head = {"controller": "c:/h", "number": 7, "at_ms": 1, "through": 90, "head": f"7:{'a' * 64}", "kept": []}
    serve(lambda asked: as_json(head))
    assert hal("audit", "head").out == f"7:{'a' * 64}\n"
