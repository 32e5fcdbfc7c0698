"""One probe of a step of a service: a connection to its port, a request, or a command inside the step; and the answer.

Runs in a process of its own, with the rights of the agent; what it begins inside has the rights of the step, its
cgroups and its mark. It ends when its time is over, whatever the step does.
"""

from __future__ import annotations

import os
import select
import socket
import time

from hal.daemons.agent.keeper.stream_process.forwarding import dial_inside
from hal.daemons.agent.keeper.stream_process.inside import Inside
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal, answer
from hal.daemons.agent.keeper.stream_process.remains import VARIABLE, end_all
from hal.daemons.agent.keeper.stream_process.session import Program, begin, new_name

HTTP = "http"
TCP = "tcp"
COMMAND = "command"
MAX_HEAD_BYTES = 4_096
"""Of an HTTP answer; the status is at its beginning."""
READY_STATUSES = range(200, 400)
NOT_READY = ("not-found", "unreachable", "denied")
"""Refusals that say something about the step: nobody serves its port, or there is no such program."""


def probe(order: Order) -> bytes:
    """Probe a step; returns the answer for the agent: `ready` with a reason, or a code and an error if it could not be
    asked."""
    deadline_s = time.monotonic() + order.timeout_ms / 1000
    try:
        inside = Inside(order)
        if order.probe == COMMAND:
            reason = _run(order, inside, deadline_s)
        else:
            reason = _dial(order, inside, deadline_s)
    except Refusal as refusal:
        if refusal.code not in NOT_READY:
            return answer(code=refusal.code, error=refusal.text)
        reason = refusal.text
    except TimeoutError:
        reason = f"no answer within {order.timeout_ms / 1000:g} s"
    except OSError as error:
        reason = f"port {order.port}: {error.strerror or error}"
    return answer(ready=not reason, reason=reason)


def _dial(order: Order, inside: Inside, deadline_s: float) -> str:
    """Why it is not ready; '' if it is."""
    with dial_inside(order, inside, _left_s(deadline_s)) as dialled:
        if order.probe == TCP:
            return ""
        dialled.settimeout(_left_s(deadline_s))
        request = f"GET {order.path} HTTP/1.1\r\nHost: {order.host}:{order.port}\r\nUser-Agent: hal-probe\r\n"
        dialled.sendall(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
        return _status_reason(_head(dialled, deadline_s), order.path)


def _head(dialled: socket.socket, deadline_s: float) -> bytes:
    head = b""
    while b"\n" not in head and len(head) < MAX_HEAD_BYTES:
        dialled.settimeout(_left_s(deadline_s))
        piece = dialled.recv(MAX_HEAD_BYTES)
        if not piece:
            break
        head += piece
    return head


def _status_reason(head: bytes, path: str) -> str:
    words = head.split(b"\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        return f"GET {path}: what answers does not speak HTTP"
    status = int(words[1])
    return "" if status in READY_STATUSES else f"GET {path}: status {status}"


def _run(order: Order, inside: Inside, deadline_s: float) -> str:
    name = new_name(inside)
    environment = inside.environment | {VARIABLE: name} if name else dict(inside.environment)
    pid = begin(inside, Program(list(order.argv), environment, ""), _Nothing())
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    in_time = bool(poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000))
    if not in_time:
        end_all(pid, name, politely=False)
        return f"{order.argv[0]}: no end within {order.timeout_ms / 1000:g} s"
    _, status = os.waitpid(pid, 0)
    end_all(pid, name, politely=False)
    code = os.waitstatus_to_exitcode(status)
    return "" if not code else f"{order.argv[0]}: " + (f"exit code {code}" if code > 0 else f"signal {-code}")


class _Nothing:
    """The streams of a command whose output nobody reads."""

    def take(self) -> None:
        """Lead a session, with nothing to read and nowhere to write."""
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)


def _left_s(deadline_s: float) -> float:
    """Raises:
    TimeoutError: none is left.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
