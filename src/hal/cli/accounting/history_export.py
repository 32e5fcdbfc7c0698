"""`hal history --export FILE`: ended attempts as the collector keeps them, as CSV or Parquet, page by page.

Memory does not follow the number of attempts: a page is written before the next one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hal.core.model.errors import SpecError

if TYPE_CHECKING:
    from hal.client.rest.usage_calls import KeptAttemptInfo

ROWS_AT_ONCE: Final = 20_000
"""Rows of a group of a Parquet file."""
FORMATS: Final = ("parquet", "csv")
_TEXTS: Final = ("job", "state", "name", "queue", "account", "user", "trace_id", "parent_span", "cause", "message")
_FLAGS: Final = ("partly_counted", "energy_measured", "gated")
_NUMBERS: Final = ("energy_j", "measured_energy_j", "price")


def format_of(path: Path, chosen: str | None) -> str:
    """The one that was asked for, else that of the file's name.

    Raises:
        SpecError: neither says which.
    """
    found = chosen or path.suffix.removeprefix(".").lower()
    if found not in FORMATS:
        raise SpecError(f"{path}: its name does not say in which format it is to be", hint="--format parquet, or csv")
    return found


def write_attempts(path: Path, kind: str, attempts: Iterable[KeptAttemptInfo]) -> int:
    """Write them all; returns how many they were.

    Raises:
        SpecError: Parquet is asked for, and its library is not installed.
        OSError: the file cannot be written.
    """
    return _write_parquet(path, attempts) if kind == "parquet" else _write_csv(path, attempts)


def check_format(kind: str) -> None:
    """Whether it can be written, before anything is asked for.

    Raises:
        SpecError: as `write_attempts`.
    """
    if kind == "parquet":
        _pyarrow()


def _write_csv(path: Path, attempts: Iterable[KeptAttemptInfo]) -> int:
    import csv

    from hal.cli.accounting.usage import harmless
    from hal.client.rest.usage_calls import KeptAttemptInfo

    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        names = [name for name in KeptAttemptInfo.__struct_fields__ if name != "id"]
        table.writerow(names)
        for one in attempts:
            count += 1
            table.writerow([_cell(getattr(one, name), harmless) for name in names])
    return count


def _cell(value: Any, harmless: Any) -> Any:
    if isinstance(value, tuple):
        return harmless(" ".join(value))
    return "" if value is None else harmless(value) if isinstance(value, str) else value


def _write_parquet(path: Path, attempts: Iterable[KeptAttemptInfo]) -> int:
    pyarrow, parquet = _pyarrow()
    schema = _schema(pyarrow)
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _groups(attempts):
            count += len(rows)
            columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
            writer.write_table(pyarrow.table(columns, schema=schema))
    return count


def _schema(pyarrow: Any) -> Any:
    """Instants are UTC, other times milliseconds."""
    from hal.client.rest.usage_calls import KeptAttemptInfo

    instants = ("submit_ms", "eligible_ms", "allocated_ms", "start_ms", "end_ms")
    kinds = {
        **dict.fromkeys(_TEXTS, pyarrow.string()),
        **dict.fromkeys(_FLAGS, pyarrow.bool_()),
        **dict.fromkeys(_NUMBERS, pyarrow.float64()),
        **dict.fromkeys(instants, pyarrow.timestamp("ms", tz="UTC")),
        **dict.fromkeys(("nodes", "after_jobs"), pyarrow.list_(pyarrow.string())),
    }
    names = [name for name in KeptAttemptInfo.__struct_fields__ if name != "id"]
    return pyarrow.schema([(name, kinds.get(name, pyarrow.int64())) for name in names])


def _groups(attempts: Iterable[KeptAttemptInfo]) -> Iterator[list[KeptAttemptInfo]]:
    left = iter(attempts)
    while rows := list(islice(left, ROWS_AT_ONCE)):
        yield rows


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SpecError(
            "Parquet needs pyarrow, which is not installed",
            hint="pip install 'hal-scheduler[parquet]', or --format csv",
        ) from None
    return pyarrow, parquet
