"""The contract of a gate's service, checked through its socket: `python -m hal.conformance.plane.gate SOCKET`.

Each check is one sentence of docs/gates.md. The service may be written in any language: only lines on its socket are
exchanged. It must let the attempts of the checks in, if `--argument` is one that it accepts.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final, NamedTuple

import msgspec

from hal.conformance.answers import NonConformance
from hal.core.model.errors import SpecError
from hal.core.model.gate import MAX_ARGUMENT_BYTES, GatePhase
from hal.core.model.gate_protocol import (
    ANSWER_MS,
    LONGEST_AGAIN_MS,
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    SHORTEST_AGAIN_MS,
    GateAnswer,
    GateAsk,
    GateRequest,
    GateVerdictWord,
    decode_answer,
    encode_request,
)
from hal.core.model.printable import printable

AT_ONCE: Final = 16
"""Connections that are open at the same time in one check."""
PATIENCE_S: Final = 60.0
"""How long a service may answer `waiting` before a check gives up, unless its caller says otherwise."""
FIRST_JOB: Final = 1 << 40
"""Ids of jobs in requests, which no real one has."""


class Service:
    """A service under test."""

    def __init__(self, path: Path, *, phase: GatePhase, argument: str, patience_s: float = PATIENCE_S) -> None:
        """Args:
        path: of its socket.
        argument: one with which it lets an attempt continue.
        patience_s: how long that may take.
        """
        self.path = path
        self.phase = phase
        self.argument = argument
        self.patience_s = patience_s
        self._job = FIRST_JOB + time.time_ns() % FIRST_JOB

    def request(self, **fields: Any) -> GateRequest:
        """A request about an attempt that was never asked about before."""
        self._job += 1
        asked = GateRequest(
            ask=GateAsk.ENTER,
            gate=self.path.name.removesuffix(".sock"),
            phase=self.phase,
            job=self._job,
            task=0,
            attempt=1,
            rank=0,
            node="conformance",
            user="conformance",
            deadline_ms=round(self.patience_s * 1000),
            argument=self.argument,
        )
        return msgspec.structs.replace(asked, **fields)

    def connect(self) -> socket.socket:
        """A connection whose reads and writes take no longer than an answer may.

        Raises:
            NonConformance: nobody serves the socket.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(ANSWER_MS / 1000)
        try:
            sock.connect(str(self.path))
        except OSError as error:
            sock.close()
            raise NonConformance(f"nobody serves {self.path}: {error.strerror or error}") from None
        return sock

    def exchange(self, line: bytes) -> bytes:
        """What is answered to a line, up to its newline or the end of the connection.

        Raises:
            NonConformance: nothing, for as long as an answer may take.
        """
        with self.connect() as sock:
            return _exchanged(sock, line)

    def ask(self, request: GateRequest) -> GateAnswer:
        """One answer.

        Raises:
            NonConformance: it is malformed, late, or missing.
        """
        return _answer_of(self.exchange(encode_request(request)))

    def settle(self, request: GateRequest) -> GateAnswer:
        """The answer after `waiting`, asked again as an agent does it.

        Raises:
            NonConformance: it still waits when the patience is over.
        """
        deadline_s = time.monotonic() + self.patience_s
        while (answer := self.ask(request)).state is GateVerdictWord.WAITING:
            again_ms = min(max(answer.again_ms or 100, SHORTEST_AGAIN_MS), LONGEST_AGAIN_MS)
            if time.monotonic() + again_ms / 1000 > deadline_s:
                raise NonConformance(f"it still answers 'waiting' after {self.patience_s:g} s: {answer.reason}")
            time.sleep(again_ms / 1000)
        return answer


def _exchanged(sock: socket.socket, line: bytes) -> bytes:
    answer = b""
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read more than a request may have
            sock.sendall(line)
        while b"\n" not in answer and len(answer) <= MAX_ANSWER_BYTES:
            data = sock.recv(4_096)
            if not data:
                break
            answer += data
    except TimeoutError:
        raise NonConformance(f"no answer within {ANSWER_MS} ms to {line[:200]!r}") from None
    except OSError:
        return answer  # it closed the connection before it had read everything
    return answer[: answer.find(b"\n") + 1] or answer


def _answer_of(line: bytes) -> GateAnswer:
    try:
        return decode_answer(line)
    except SpecError as error:
        raise NonConformance(f"{error.message}; it answered {line[:200]!r}") from None


# ── the contract ──────────────────────────────────────────────────────────────────────────────────────────────────


def lets_an_attempt_continue(service: Service) -> None:
    """An attempt with a good argument is let in, at once or after it waited."""
    answer = service.settle(service.request())
    if answer.state is not GateVerdictWord.READY:
        raise NonConformance(f"it refused argument {service.argument!r}: {answer.reason}")


def says_the_same_again(service: Service) -> None:
    """The same attempt may be asked for again, on another connection: the answer stays."""
    request = service.request()
    first = service.settle(request)
    second = service.settle(request)
    if first.state is not second.state:
        raise NonConformance(f"it answered '{first.state}', and then '{second.state}' for the same attempt")


def tells_attempts_ranks_and_tasks_apart(service: Service) -> None:
    """Another attempt, rank or task of a job is another question, and gets an answer of its own."""
    request = service.request()
    for other in (request, *(msgspec.structs.replace(request, **{name: 2}) for name in ("task", "attempt", "rank"))):
        if service.settle(other).state is not GateVerdictWord.READY:
            raise NonConformance("it lets one attempt in, and refuses another of the same job")


def serves_several_at_once(service: Service) -> None:
    """Connections are served side by side: one that is slow, or silent, keeps nobody waiting."""
    silent = [service.connect() for _ in range(2)]
    faults: list[NonConformance] = []

    def ask() -> None:
        try:
            service.settle(service.request())
        except NonConformance as fault:
            faults.append(fault)

    try:
        threads = [Thread(target=ask) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for sock in silent:
            sock.close()
    if faults:
        raise NonConformance(f"of {AT_ONCE} requests at once, {len(faults)} were not answered: {faults[0]}")


def survives_who_goes_away(service: Service) -> None:
    """An agent may close its connection at any time: with nothing, with half a line, without reading the answer."""
    whole = encode_request(service.request())
    for line in (b"", whole[: len(whole) // 2], whole):
        with service.connect() as sock:
            if line:
                sock.sendall(line)
    lets_an_attempt_continue(service)


def ignores_fields_that_it_does_not_know(service: Service) -> None:
    """A later agent may say more."""
    fields = msgspec.json.decode(encode_request(service.request()))
    line = msgspec.json.encode({**fields, "later": {"a": [1, None, "x"]}}) + b"\n"
    if _answer_of(service.exchange(line)).state is GateVerdictWord.REFUSED:
        raise NonConformance("it refuses a request with a field that it does not know")


def lets_nothing_in_that_is_no_request(service: Service) -> None:
    """What is malformed, or of another version, is refused or dropped, never let in; others are served afterwards."""
    other_version = encode_request(service.request()).replace(b'"version":1', b'"version":99')
    for line in (b"\n", b"hello\n", b'{"version":1}\n', b"\xff\xfe\n", b"[" * 1_000 + b"\n", other_version):
        _is_not_let_in(service, line)
    lets_an_attempt_continue(service)


def bounds_what_it_reads(service: Service) -> None:
    """A line that is longer than any request is not let in, and ends nothing."""
    _is_not_let_in(service, b'{"version":1,"argument":"' + b"x" * (4 * MAX_REQUEST_BYTES) + b'"}\n')
    lets_an_attempt_continue(service)


def takes_arguments_as_data(service: Service) -> None:
    """An argument comes from a user: it is refused or accepted as a value, whatever it says."""
    with TemporaryDirectory() as directory:
        mark = Path(directory, "ran")
        for argument in (
            f"$(touch {mark})",
            f"`touch {mark}`",
            f"; touch {mark};",
            "../../../etc/passwd",
            '","ask":"cancel","x":"',
            "--help",
            "%s%n {}",
            "é" * (MAX_ARGUMENT_BYTES // 2),
        ):
            _answer_of(service.exchange(encode_request(service.request(argument=argument))))
        if mark.exists():
            raise NonConformance("it ran an argument as a command")
    lets_an_attempt_continue(service)


def takes_a_cancel(service: Service) -> None:
    """A cancel of what it knows, of what it does not know, and again, is answered; and the attempt may come back."""
    known = service.request()
    service.ask(known)
    for request in (known, known, service.request()):
        service.exchange(encode_request(msgspec.structs.replace(request, ask=GateAsk.CANCEL, deadline_ms=0)))
    if service.settle(known).state is not GateVerdictWord.READY:
        raise NonConformance("it does not let an attempt in that was cancelled and asks again")


def _is_not_let_in(service: Service, line: bytes) -> None:
    answer = service.exchange(line)
    try:
        state = decode_answer(answer).state
    except SpecError:
        return
    if state is GateVerdictWord.READY:
        raise NonConformance(f"it answered 'ready' to {line[:80]!r}")


CHECKS: Final[tuple[Callable[[Service], None], ...]] = (
    lets_an_attempt_continue,
    says_the_same_again,
    tells_attempts_ranks_and_tasks_apart,
    serves_several_at_once,
    survives_who_goes_away,
    ignores_fields_that_it_does_not_know,
    lets_nothing_in_that_is_no_request,
    bounds_what_it_reads,
    takes_arguments_as_data,
    takes_a_cancel,
)


class Result(NamedTuple):
    """The result of one check."""

    rule: str
    """In words."""
    fault: str
    """How the service breaks it; '' if it does not."""


def check_gate(
    path: Path,
    *,
    phase: GatePhase = GatePhase.PREPARING,
    argument: str = "",
    patience_s: float = PATIENCE_S,
) -> list[Result]:
    """Check the service at that socket; one result for each rule.

    Args:
        argument: one with which it lets an attempt continue.
        patience_s: how long it may answer `waiting` before it does.
    """
    service = Service(path, phase=phase, argument=argument, patience_s=patience_s)
    results = []
    for check in CHECKS:
        rule = (check.__doc__ or "").strip()
        try:
            check(service)
        except NonConformance as error:
            results.append(Result(rule, str(error)))
        else:
            results.append(Result(rule, ""))
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Check a service and print a line for each rule. Exit code 0: it conforms; 1: it does not."""
    parser = argparse.ArgumentParser(prog="python -m hal.conformance.plane.gate", description=__doc__)
    parser.add_argument("socket", type=Path, help="the socket of the service")
    parser.add_argument(
        "--phase", type=GatePhase, default=GatePhase.PREPARING, help="preparing (default) or finalising"
    )
    parser.add_argument("--argument", default="", help="one with which it lets an attempt continue (default: none)")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds that this may take (default: 60)")
    asked = parser.parse_args(argv)
    results = check_gate(asked.socket, phase=asked.phase, argument=asked.argument, patience_s=asked.patience)
    for rule, fault in results:
        sys.stdout.write(printable(f"{'FAIL' if fault else 'ok':4}  {rule}\n", lines=True))
        if fault:
            sys.stdout.write(printable(f"      {fault}\n", lines=True))
    return 1 if any(fault for _, fault in results) else 0


if __name__ == "__main__":
    sys.exit(main())
