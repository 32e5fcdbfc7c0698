"""What plugins answer, checked before the engine believes it: a wrong answer is an error that names the policy.

Pure. An answer of the wrong shape would be broadcast and NaN would become some integer; both would be plans that nobody
can explain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.engine.errors import PolicyFault
from hal.core.interfaces.domain_score import DomainScore, DomainView, Gang
from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.policy import BucketView, ClusterView, JobView, NodeView, Request, RunView
from hal.core.interfaces.preempt import Preempt
from hal.core.interfaces.score import Score
from hal.core.kernels.structures.arrays import Amounts, Ints, Mask
from hal.core.kernels.structures.layout import INF, PRICE_NEVER, PRICE_ONE

V = TypeVar("V", JobView, BucketView, NodeView, Request, RunView, Gang, DomainView)

_SCORE_ONE: Final = 1_000_000
DEAREST: Final = 10**9
"""Prices above it count as this much."""


class _Asked(NamedTuple):
    """Whom an error names."""

    setting: str
    name: str

    def fault(self, what: str) -> PolicyFault:
        return PolicyFault(self.setting, self.name, what)


def keys_of(order: Order, jobs: JobView, view: ClusterView) -> Ints:
    """The order's keys of these jobs. Raises PolicyFault unless they are as many integers below 2**60."""
    policy = _Asked("order", order.info.name)
    answer = _said(policy, "key", lambda: order.key(_read_only(jobs), view))
    return _integers(answer, jobs.job.shape[0], policy, "key")


def offsets_of(order: Order, buckets: BucketView, view: ClusterView, now_ms: int) -> Ints:
    """The order's offsets of these buckets. Raises PolicyFault unless they are as many integers below 2**60."""
    policy = _Asked("order", order.info.name)
    answer = _said(policy, "offset", lambda: order.offset(_read_only(buckets), view, now_ms))
    return _integers(answer, buckets.class_id.shape[0], policy, "offset")


def scores_of(score: Score, request: Request, view: NodeView) -> Ints:
    """The score of each row in units of 1e-6, cut to 0..1. Raises PolicyFault unless each row has a real number."""
    policy = _Asked("score", score.info.name)
    if not score.info.reads_preference:
        request = replace(request, spread="", near=())
    said = _said(policy, "score", lambda: score.score(_read_only(request), _read_only(view)))
    answer = _column(said, view.rows, policy, "score", "iuf")
    if np.isnan(answer).any():
        row = int(np.flatnonzero(np.isnan(answer))[0])
        raise policy.fault(f"score() returned NaN for row {row}: every row needs a number from 0 to 1")
    return _in_millionths(answer)


def domain_scores_of(score: DomainScore, gang: Gang, view: NodeView, domains: DomainView) -> Ints:
    """The score of each domain in units of 1e-6, cut to 0..1. Raises PolicyFault unless each has a real number."""
    policy = _Asked("domain-score", score.info.name)
    said = _said(policy, "score", lambda: score.score(_read_only(gang), _read_only(view), _read_only(domains)))
    answer = _column(said, domains.domains, policy, "score", "iuf")
    if np.isnan(answer).any():
        name = domains.name[int(np.flatnonzero(np.isnan(answer))[0])]
        raise policy.fault(f"score() returned NaN for domain {name}: every domain needs a number from 0 to 1")
    return _in_millionths(answer)


def mask_of(policy: Filter, request: Request, view: NodeView) -> Mask:
    """Which rows the filter admits. Raises PolicyFault unless it says so by one bool a row."""
    of = _Asked("filter", policy.info.name)
    said = _said(of, "mask", lambda: policy.mask(_read_only(request), _read_only(view)))
    return _column(said, view.rows, of, "mask", "b")


def prices_of(policy: Preempt, runs: RunView, now_ms: int) -> Ints:
    """What each attempt costs, in units of 1e-6, PRICE_NEVER where it is never taken.

    Raises PolicyFault unless each attempt has a number of 0 or more, or inf.
    """
    of = _Asked("preempt", policy.info.name)
    said = _said(of, "price", lambda: policy.price(_read_only(runs), now_ms))
    answer = _column(said, runs.job.shape[0], of, "price", "iuf").astype(np.float64)
    wrong = ~(answer >= 0.0)  # NaN is not
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise of.fault(
            f"price() returned {answer[at]} for job {runs.job[at]}: a price is 0 or more, inf where it is never taken"
        )
    units = np.rint(np.minimum(answer, DEAREST) * PRICE_ONE).astype(np.int64)
    return np.where(np.isinf(answer), PRICE_NEVER, units)


def _said(policy: _Asked, method: str, ask: Callable[[], object]) -> object:
    try:
        return ask()
    except (Exception, SystemExit) as error:  # other people's code: whatever it raises becomes the error that names it
        raise policy.fault(f"{method}() raised {type(error).__name__}: {error} (at {_where(error)})") from error


def _where(error: BaseException) -> str:
    """File and line that raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else "?"


def _read_only(view: V) -> V:
    """The same columns, some of them the engine's own, so that a policy cannot write to them."""
    columns: dict[str, Any] = {}
    for name in view.__struct_fields__:
        column = getattr(view, name)
        if isinstance(column, np.ndarray):
            columns[name] = _unwriteable(column)
        elif name == "advice":
            columns[name] = {kind: _unwriteable(values) for kind, values in column.items()}
    return replace(view, **columns)


def _unwriteable(column: NDArray[Any]) -> NDArray[Any]:
    same = column.view()
    same.flags.writeable = False
    return same


def _in_millionths(answer: NDArray[Any]) -> Ints:
    cut: Amounts = np.clip(answer.astype(np.float64), 0.0, 1.0)
    return np.rint(cut * _SCORE_ONE).astype(np.int64)


def _integers(answer: object, count: int, policy: _Asked, method: str) -> Ints:
    column = _column(answer, count, policy, method, "iu")
    if count and not (int(column.min()) > -INF and int(column.max()) < INF):
        raise policy.fault(f"{method}() returned a number of 2**60 or more; keys lie between -2**60 and 2**60")
    return np.ascontiguousarray(column, np.int64)


def _column(answer: Any, count: int, policy: _Asked, method: str, kinds: str) -> NDArray[Any]:
    try:
        column = np.asarray(answer)
    except (TypeError, ValueError) as error:
        raise policy.fault(f"{method}() returned no array: {error}") from error
    if column.shape != (count,):
        raise policy.fault(f"{method}() returned an array of shape {column.shape}; ({count},) is needed")
    if column.dtype.kind not in kinds:
        needed = {"b": "bool", "iu": "integers", "iuf": "floats"}[kinds]
        raise policy.fault(f"{method}() returned an array of dtype {column.dtype}; {needed} are needed")
    return column
