"""What an agent asks of its node's stream service, and what it is answered: a line of JSON each."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MAX_ORDER_BYTES = 1 << 20
EXEC = "exec"
FORWARD = "forward"
ATTACH = "attach"
LAUNCH = "launch"
PROBE = "probe"


class Refusal(Exception):
    """A stream is not opened, or ends; for whoever asked for it."""

    def __init__(self, code: str, text: str) -> None:
        """Args:
        code: as in problem documents.
        """
        super().__init__(text)
        self.code = code
        self.text = text


class Order(NamedTuple):
    """A stream to open, or a probe to make."""

    step: str
    job: int
    kind: str
    ticket: str
    argv: tuple[str, ...]
    terminal: bool
    term: str
    rows: int
    columns: int
    port: int
    ranks: int
    first_rank: int
    size: int
    by: str
    """Who asked; the bound of streams by user counts these."""
    listen: bool
    """The other end comes to a TCP port, in TLS; otherwise to a Unix socket here."""
    relay: int
    """Port of the relay at which the other end is met instead; 0: none."""
    relay_host: str
    meeting: str
    certificate: str
    """Path of the certificate, with its key, for that."""
    directory: str
    """Where the Unix socket is created."""
    shared: bool
    """Other users of this host may come to it."""
    pid: int
    started_boot_ms: int
    mark: int
    user: str
    least_uid: int
    no_new_privileges: bool
    sandboxed: bool
    interactive: bool
    cgroups: tuple[str, ...]
    cpus: tuple[int, ...]
    stride: int = 1
    bind: bool = False
    """Of `launch`: how far ranks of this node are apart, and whether each has CPUs of its own."""
    probe: str = ""
    """Of kind `probe`, `http`, `tcp` or `command`: nobody comes, and the answer says whether the step is ready."""
    path: str = ""
    host: str = ""
    """For `http`: what is asked for, and as whom."""
    timeout_ms: int = 0


def read_order(line: bytes) -> Order:
    """Read a line.

    Raises:
        Refusal: it is no order.
    """
    try:
        fields: dict[str, Any] = json.loads(line)
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
        return Order(**plain)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refusal("invalid-request", f"this is no order of a stream: {error}") from None


def answer(**fields: str | int | bool) -> bytes:
    """Write an answer: `path`, or `fingerprint` with or without `port`, or `ready` and `reason`, or `code` and
    `error`."""
    return json.dumps(fields).encode() + b"\n"
