"""The provider of `provider.py` as a process, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen


class Provider:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def control(self, **asked: Any) -> dict[str, Any]:
        """Tell it what to do; see `control` there."""
        with urlopen(Request(f"{self.url}/control", json.dumps(asked).encode()), timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def token(self, **claims: Any) -> str:
        """A token with these claims; None leaves one out."""
        made: str = self.control(mint=claims)["token"]
        return made

    def hostile(self, kind: str) -> str:
        """A token that nobody may believe."""
        made: str = self.control(hostile=kind)["token"]
        return made

    @property
    def fetches(self) -> int:
        """How often its keys were asked for."""
        count: int = self.control()["fetches"]
        return count

    def section(self, more: str = "") -> str:
        """`[access.oidc]` of hal.toml."""
        return f'[access.oidc]\nissuer = "{self.url}"\nclient_id = "hal-cli"\n{more}\n'


@contextmanager
def running_provider() -> Iterator[Provider]:
    """One for a while."""
    script = Path(__file__).with_name("provider.py")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Provider(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()
