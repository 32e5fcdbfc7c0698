"""A real PostgreSQL of the test run's own: a directory, a Unix socket, no port; a fresh database in milliseconds."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
import pytest
from sqlalchemy.engine import make_url

from hal.store import Store
from hal.store.schema import metadata

USER: Final = "postgres"
READY: Final = b"database system is ready to accept connections"
SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "log_min_messages": "log",
    "log_checkpoints": "off",
}


def programs() -> Path | None:
    """Where PostgreSQL's programs lie; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def database_of(url: str) -> str:
    """The database that a URL names."""
    name = make_url(url).database
    assert name is not None
    return name


class PostgresServer:
    """One server; it may be stopped and started again, by any signal."""

    def __init__(self, **settings: str) -> None:
        bin_dir = programs()
        if bin_dir is None:
            pytest.skip("PostgreSQL is not installed")
        self._bin = bin_dir
        self.root = Path(tempfile.mkdtemp(prefix="hal-pg-", dir="/tmp"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            # initdb and postgres refuse root.
            account = pwd.getpwnam("postgres")
            os.chown(self.root, account.pw_uid, account.pw_gid)
            self._as = ["setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
        self._settings = {**SETTINGS, "unix_socket_directories": str(self.root), **settings}
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._template = ""
        self._shared = ""
        made = [*self._as, str(self._bin / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "-N"]
        done = subprocess.run(
            [*made, "--encoding=UTF8", "--locale=C"], capture_output=True, text=True, cwd="/", check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr}")
        self.start()

    @property
    def data(self) -> Path:
        """Its files."""
        return self.root / "data"

    def start(self) -> None:
        """Start it; returns when it accepts connections."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*self._as, str(self._bin / "postgres"), "-D", str(self.data), *options], stderr=subprocess.PIPE, cwd="/"
        )
        assert self._process.stderr is not None
        said = b""
        for line in self._process.stderr:
            said += line
            if READY in line:
                return
        raise RuntimeError(f"PostgreSQL did not start: {said.decode(errors='replace')}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT rolls back what is under way, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def remove(self) -> None:
        """Stop it and leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)

    def url(self, database: str, host: str = "") -> str:
        """For `Store.open`; `host`: another directory of a socket (a proxy's)."""
        return f"postgresql://{USER}@/{database}?host={host or self.root}"

    def behind(self, directory: Path, url: str) -> str:
        """The same database, reached by a socket in another directory."""
        return self.url(database_of(url), str(directory))

    @contextmanager
    def standby(self, name: str) -> Iterator[None]:
        """A server that copies this one by streaming, asynchronously unless the settings say otherwise."""
        data, sockets = self.root / name, self.root / f"{name}-sockets"
        sockets.mkdir()
        os.chmod(sockets, 0o777)
        copied = [str(self._bin / "pg_basebackup"), "-h", str(self.root), "-U", USER, "-D", str(data), "-R", "-N"]
        done = subprocess.run(
            [*self._as, *copied, "--checkpoint=fast"], capture_output=True, text=True, cwd="/", check=False
        )
        if done.returncode:
            raise RuntimeError(f"pg_basebackup failed: {done.stderr}")
        settings = {**self._settings, "unix_socket_directories": str(sockets), "cluster_name": name}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        process = subprocess.Popen(
            [*self._as, str(self._bin / "postgres"), "-D", str(data), *options], stderr=subprocess.DEVNULL, cwd="/"
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(60)

    def admin(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the superuser, each statement a transaction."""
        return psycopg.connect(host=str(self.root), user=USER, dbname=database, autocommit=True)

    def empty(self) -> str:
        """Name of a new database without tables."""
        name = f"t{next(self._numbers)}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY")
        return name

    def emptied(self) -> str:
        """URL of the one database that tests share which leave no connection behind: its rows are deleted, which is
        faster than another database."""
        if not self._shared:
            self._shared = self.fresh()
        tables = "; ".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))
        with self.admin(database_of(self._shared)) as connection:
            connection.execute(f"{tables}; INSERT INTO leader (id, epoch, holder, taken_ms) VALUES (1, 0, '', 0)")
        return self._shared

    def fresh(self) -> str:
        """URL of a new database with HAL's empty tables, copied from one that was migrated once."""
        if not self._template:
            template = self.empty()
            Store.open(self.url(template)).close()
            self._template = template
        name = f"t{next(self._numbers)}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY FILE_COPY")
        return self.url(name)
