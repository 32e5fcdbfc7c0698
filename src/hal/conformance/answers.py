"""Call a policy and check its answer: shape, dtype, and whether it gives the same answer twice."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.advice import declaration_fault
from hal.core.interfaces.policy import PolicyInfo

_NEEDED: Final = {"b": "bool", "iu": "whole numbers (int64)", "iuf": "numbers (float32)"}
_READ_ONLY: Final = "read-only"


class NonConformance(AssertionError):
    """The policy breaks its contract; the message names the policy, the method, the input, and the violation."""


def info_of(policy: Any, interfaces: tuple[str, ...], methods: tuple[str, ...]) -> PolicyInfo:
    """Return the policy's PolicyInfo.

    Args:
        interfaces: the versions for which it may be written, oldest first.
    Raises:
        NonConformance: it is malformed, or the policy is written for another interface.
    """
    info = getattr(policy, "info", None)
    if not isinstance(info, PolicyInfo):
        raise NonConformance(f"{policy!r}: its `info` must be a PolicyInfo, and is {info!r}")
    if not isinstance(info.name, str) or not info.name.strip():
        raise NonConformance(f"{policy!r}: info.name must be a name that hal.toml can contain, and is {info.name!r}")
    if info.interface not in interfaces:
        known = " and ".join(map(repr, interfaces))
        raise NonConformance(f"policy '{info.name}' is written for {info.interface!r}; this HAL has {known}")
    for method in methods:
        if not callable(getattr(policy, method, None)):
            raise NonConformance(f"policy '{info.name}': {info.interface} needs a method {method}()")
    fault = declaration_fault(info)
    if fault:
        raise NonConformance(f"policy '{info.name}': {fault}")
    return info


class Asking:
    """One method of one policy, called repeatedly; its errors name the case."""

    def __init__(self, name: str, method: str) -> None:
        self._of = f"policy '{name}', {method}()"
        self._where = ""

    def about(self, where: str) -> None:
        """Name the case of the following calls."""
        self._where = where

    def wrong(self, what: str) -> NonConformance:
        """Create the error to raise."""
        return NonConformance(f"{self._of}, {self._where}: {what}")

    def answer(self, call: Callable[[], Any]) -> Any:
        """Return the policy's answer.

        Raises:
            NonConformance: it raised an exception.
        """
        try:
            return call()
        except Exception as error:  # somebody else's code: whatever it raises is reported
            at = traceback.extract_tb(error.__traceback__)[-1]
            told = f"raised {type(error).__name__}: {error} (at {at.filename}:{at.lineno})"
            if isinstance(error, ValueError) and _READ_ONLY in str(error):
                told += "; the columns that a policy is given are read-only: copy what you change"
            raise self.wrong(told) from error

    def column(self, call: Callable[[], Any], count: int, kinds: str) -> NDArray[Any]:
        """Return the answer, if it is an array of that length and equal when called again.

        Args:
            kinds: of numpy's dtypes, as `b`, `iu`, `iuf`.
        Raises:
            NonConformance: it is not.
        """
        first, second = (self._column(self.answer(call), count, kinds) for _ in range(2))
        if not np.array_equal(first, second, equal_nan=kinds == "iuf"):
            at = int(np.flatnonzero(first != second)[0])
            raise self.wrong(
                f"called twice with the same input, it returned {first[at]} and then {second[at]} at index {at}; an "
                "answer depends on the arguments alone (no clock, no randomness, no memory)"
            )
        return first

    def _column(self, answer: Any, count: int, kinds: str) -> NDArray[Any]:
        if not isinstance(answer, np.ndarray):
            raise self.wrong(f"returned {type(answer).__name__}; a numpy array is needed")
        if answer.shape != (count,):
            raise self.wrong(f"returned an array of shape {answer.shape}; ({count},) is needed")
        if answer.dtype.kind not in kinds:
            raise self.wrong(f"returned an array of dtype {answer.dtype}; {_NEEDED[kinds]} are needed")
        return answer.copy()

    def same_for_some(self, whole: NDArray[Any], part: NDArray[Any], chosen: NDArray[np.int64], what: str) -> None:
        """Check that the answer for a part of the input equals the corresponding part of the answer for all of it.

        Raises:
            NonConformance: it depends on what else is in the input.
        """
        different = whole[chosen] != part
        if whole.dtype.kind == "f" or part.dtype.kind == "f":
            different = ~(np.abs(whole[chosen].astype(np.float64) - part) <= SAME_WITHIN)
        if different.any():
            at = int(np.flatnonzero(different)[0])
            raise self.wrong(
                f"returned {whole[chosen[at]]} for {what} {int(chosen[at])}, and {part[at]} when called with "
                f"{chosen.size} of the {whole.size}: it must not depend on which others are passed, or in what order"
            )


SAME_WITHIN: Final = 1.5e-6
"""Scores are rounded to 1e-6; numpy may add up in another order for another length."""
