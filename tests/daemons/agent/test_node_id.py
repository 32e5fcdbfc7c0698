"""By what a node is known again."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.agent.node_id import MAX_CHARS, read_node_id


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    """Also where a first try left an empty file; a longer one is cut, a disk that takes none gives none."""
    words = iter(("first", "second", "third"))
    file = tmp_path / "id"
    assert [read_node_id(file, lambda: next(words)) for _ in range(2)] == ["first", "first"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("")
    assert read_node_id(file, lambda: next(words)) == "second"
    file.write_text("x" * 100)
    assert read_node_id(file, lambda: next(words)) == "x" * MAX_CHARS
    assert read_node_id(tmp_path / "none" / "id", lambda: next(words)) == ""
