"""A part's database: transactions, migrations, and what is damaged."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hal.core.model import StoreError
from hal.planes.observability.database import Database
from tests.runtime.real_runtime import run_real

FIRST = "CREATE TABLE number (value INTEGER NOT NULL)"
SECOND = "ALTER TABLE number ADD COLUMN name TEXT NOT NULL DEFAULT 'none'"


def on_database(
    tmp_path: Path, test: Callable[[Database], Awaitable[None]], migrations: tuple[str, ...] = (FIRST,)
) -> None:
    """Run it with the same file each time."""

    async def main(runtime: object) -> None:
        database = Database(runtime, tmp_path / "numbers.sqlite", migrations)  # type: ignore[arg-type]
        try:
            await test(database)
        finally:
            await database.close()

    run_real(tmp_path, main)


def insert(value: int) -> Callable[[sqlite3.Connection], None]:
    def call(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO number (value) VALUES (?)", (value,))

    return call


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM number ORDER BY value")]


def test_what_was_written_is_read_by_another_connection(tmp_path: Path) -> None:
    async def body(database: Database) -> None:
        assert await database.read(numbers) == []
        await database.write(insert(1))
        assert await database.read(numbers) == [1]
        assert database.size_bytes() > 0

    on_database(tmp_path, body)
    assert (tmp_path / "numbers.sqlite").stat().st_mode & 0o777 == 0o600


def test_those_who_begin_at_once_find_one_file_made_once(tmp_path: Path) -> None:
    """Reads and writes are on two threads; both would bring a new file to this version."""

    async def body(database: Database) -> None:
        await asyncio.gather(*(database.read(numbers) for _ in range(3)), database.write(insert(1)))
        assert await database.read(numbers) == [1]

    for number in range(20):
        place = tmp_path / str(number)
        place.mkdir()
        on_database(place, body, (FIRST, SECOND))


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    async def body(database: Database) -> None:
        await database.write(insert(1))
        for path in tmp_path.glob("numbers.sqlite*"):
            path.unlink()
        assert await database.read(numbers) == []

    on_database(tmp_path, body)


def test_a_call_that_raises_writes_nothing(tmp_path: Path) -> None:
    def half(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        raise ValueError("half way")

    async def body(database: Database) -> None:
        with pytest.raises(ValueError, match="half way"):
            await database.write(half)
        await database.write(insert(2))
        assert await database.read(numbers) == [2]

    on_database(tmp_path, body)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async def body(database: Database) -> None:
        with pytest.raises(StoreError, match="readonly"):
            await database.read(insert(1))
        assert await database.read(numbers) == []

    on_database(tmp_path, body)


def test_a_file_of_an_earlier_version_is_migrated_and_one_of_a_later_version_is_refused(tmp_path: Path) -> None:
    async def first(database: Database) -> None:
        await database.write(insert(1))

    async def second(database: Database) -> None:
        names = await database.read(lambda connection: connection.execute("SELECT name FROM number").fetchall())
        assert names == [("none",)]

    async def third(database: Database) -> None:
        with pytest.raises(StoreError, match="newer HAL"):
            await database.read(numbers)
        with pytest.raises(StoreError, match="newer HAL"):
            await database.write(insert(2))

    on_database(tmp_path, first)
    on_database(tmp_path, second, (FIRST, SECOND))
    on_database(tmp_path, third)


def test_a_damaged_file_is_an_error_that_says_what_to_do_and_a_new_one_serves(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    path.write_bytes(b"this was a database once" * 400)

    async def body(database: Database) -> None:
        with pytest.raises(StoreError, match=r"numbers\.sqlite cannot be written") as caught:
            await database.write(insert(1))
        assert "move it away" in caught.value.hint
        path.unlink()
        await database.write(insert(2))
        assert await database.read(numbers) == [2]

    on_database(tmp_path, body)
