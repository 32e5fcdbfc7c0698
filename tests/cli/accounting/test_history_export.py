"""Exports of ended attempts: what is written, in bounded memory, and when a library is missing."""

from __future__ import annotations

import builtins
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.cli.accounting.history_export import ROWS_AT_ONCE, check_format, format_of, write_attempts
from hal.client.rest.usage_calls import KeptAttemptInfo
from hal.core.model import SpecError


def attempts(count: int, name: str = "train") -> Iterator[KeptAttemptInfo]:
    for number in range(1, count + 1):
        yield KeptAttemptInfo(
            id=number, job=str(number), task=0, attempt=1, state="succeeded", name=name, nodes=("n1", "n2"),
            start_ms=1_000, end_ms=2_000, cpu_ms=500, price=None,
        )  # fmt: skip


def test_parquet_has_typed_columns_and_groups_of_rows(tmp_path: Path) -> None:
    """One row more than fits into a group makes two; instants are of UTC, what is unknown is null."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    assert write_attempts(path, "parquet", attempts(ROWS_AT_ONCE + 1)) == ROWS_AT_ONCE + 1
    assert parquet.ParquetFile(path).num_row_groups == 2
    first = parquet.read_table(path).slice(0, 1).to_pylist()[0]
    assert (first["job"], first["nodes"], first["price"], first["wait_ms"]) == ("1", ["n1", "n2"], None, None)
    assert first["end_ms"].timestamp() == 2.0


def test_a_cell_of_csv_is_no_formula_and_no_escape_sequence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert write_attempts(path, "csv", attempts(1, "=HYPERLINK(1)\x1b[31m")) == 1
    (found,) = csv.DictReader(path.open())
    assert found["name"] == "'=HYPERLINK(1)\\x1b[31m"
    assert (found["nodes"], found["price"]) == ("n1 n2", "")


def test_without_its_library_parquet_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SpecError, match="pyarrow") as caught:
        check_format("parquet")
    assert "hal-scheduler[parquet]" in caught.value.hint


def test_the_name_of_the_file_says_the_format_unless_one_is_given() -> None:
    assert format_of(Path("a.CSV"), None) == "csv"
    assert format_of(Path("a.txt"), "parquet") == "parquet"
    with pytest.raises(SpecError, match="does not say in which format"):
        format_of(Path("a.txt"), None)
