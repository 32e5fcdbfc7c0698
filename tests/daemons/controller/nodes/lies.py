"""Frames as a lying node may say them: about steps that live, with the integers at which something is wont to break."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from hal.core.lifecycle.gates import GateState
from hal.core.model import StepId
from hal.wire.frames.agent_keeper import ExitCause, Stream

BOUNDARIES: Final = (-(2**63), -(2**53) - 1, -1, 0, 1, 2**31, 2**53, 2**53 + 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
INT = st.sampled_from((*BOUNDARIES, 0, 1, 7, 255, 256, 2**53, 1_800_000_000_000))
TEXT = st.sampled_from(
    ("", "x", "\x1b]0;x\x07", "two\nlines", "\u202e", "x" * 70_000, "spec:", "no-lease", "prolog-failed", "credit-over",
     "recalled", "already-ended", "not-held", "a:b")
)  # fmt: skip
FLOAT = st.sampled_from((0.0, -1.0, float("nan"), float("inf"), 1e308))


class Of:
    """Stands for a part of a live step's id."""

    def __init__(self, field: str) -> None:
        self.field = field

    def __repr__(self) -> str:
        return f"<{self.field}>"


def _mostly(field: str) -> st.SearchStrategy[Any]:
    return st.sampled_from((*(Of(field),) * 6, -1, 0, 1, 2, 2**31, 2**63 - 1, 2**64 - 1))


STEP = st.tuples(_mostly("job"), _mostly("task"), _mostly("attempt"), _mostly("rank"))
CAUSE = st.sampled_from((*ExitCause, "none")).map(str)
EXIT = st.tuples(STEP, CAUSE, INT, INT, INT, INT, st.tuples(INT, INT, INT, INT, INT), TEXT) | st.tuples(
    STEP, CAUSE, st.integers(0, 255), st.integers(0, 64), INT, INT, st.just([1, 2**53, 3, 4, 5]), st.just(""), STEP
)
STREAM = st.sampled_from(list(Stream))
BYTES = st.binary(max_size=9)
REASON = st.sampled_from(("cancelled", "preempted", "fenced"))
MANY = 2


def _lists(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, min_size=1, max_size=MANY)


def _frame(tag: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"t": st.just(tag), **fields})


REPORTS = st.one_of(
    _frame("exits", exits=_lists(EXIT)),
    _frame("exits", exits=_lists(EXIT)),
    _frame("started", steps=_lists(st.tuples(STEP, INT, INT))),
    _frame("refused", steps=_lists(st.tuples(STEP, TEXT, TEXT))),
    _frame(
        "gates",
        gates=_lists(
            st.tuples(STEP, st.sampled_from(("prolog", "epilog", "none")), st.sampled_from(list(GateState)), TEXT)
        ),
    ),
    _frame("health", failing=_lists(st.tuples(TEXT, TEXT, INT))),
    _frame("heartbeat", stamp_boot_ms=INT, epoch=INT, running=INT, load=FLOAT),
    _frame("done", command=TEXT, steps=_lists(STEP), failed=_lists(st.tuples(STEP, TEXT))),
    _frame("samples", samples=_lists(st.tuples(STEP, INT, INT))),
    _frame("log-chunk", request=INT, step=STEP, stream=STREAM, offset=INT, data=BYTES, size=INT, ended=st.booleans()),
    _frame("renew", request=TEXT),
    _frame("goodbye", code=TEXT, reason=TEXT),
)  # fmt: skip
"""What an agent may say to a controller."""

COMMANDS = st.one_of(
    *(_frame(tag, epoch=INT, steps=_lists(STEP)) for tag in ("suspend", "resume", "recall", "prepare")),
    _frame("stop", epoch=INT, steps=_lists(STEP), reason=REASON, grace_ms=INT),
    _frame("signal", epoch=INT, steps=_lists(STEP), name=TEXT | st.just("USR1")),
    _frame("checkpoint", epoch=INT, steps=_lists(STEP), name=TEXT | st.just("USR2"), grace_ms=INT),
    _frame("resize", epoch=INT, steps=_lists(STEP), cpu_milli=INT, memory_bytes=INT, walltime_ms=INT),
    _frame("read-log", request=INT, step=STEP, stream=STREAM, offset=INT, limit=INT),
    _frame("exits-ack", steps=_lists(STEP)),
    _frame("heartbeat", stamp_boot_ms=INT, epoch=INT),
    _frame("heartbeat-ack", stamp_boot_ms=INT, epoch=INT, lease_ms=INT, now_ms=INT),
    _frame("forget", request=INT, pieces=_lists(st.tuples(_mostly("job"), _mostly("attempt"), _mostly("task"), INT))),
    _frame(
        "start",
        epoch=INT,
        stamp_boot_ms=INT,
        lease_ms=INT,
        templates=st.just([{"command": ["/bin/true"]}]),
        steps=_lists(st.tuples(STEP, INT, TEXT, st.just(["n1"]), INT, INT, INT, INT)),
    ),
)  # fmt: skip
"""What an agent may say to its keeper."""


def about(step: StepId, value: Any) -> Any:
    """The same, with the parts of this step where a frame is to name a live one."""
    if isinstance(value, Of):
        return getattr(step, value.field)
    if isinstance(value, dict):
        return {key: about(step, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [about(step, one) for one in value]
    return value
