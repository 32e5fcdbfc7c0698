"""What people call tasks: the name of their function, and tags. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from hal.core.model.errors import SpecError
from hal.wire.bounds import MAX_NAME
from hal.wire.frames.sessions import MAX_TAG, MAX_TAGS


def function_name(function: Any) -> str:
    """`numpy.linalg.solve`, `train`, `train.<locals>.<lambda>`: with the module unless that is the program itself."""
    inner = function.func if isinstance(function, partial) else function
    try:
        name, module = inner.__qualname__, inner.__module__
    except Exception:  # whatever an object's own attributes raise
        name, module = type(inner).__qualname__, type(inner).__module__
    whole = str(name) if module in ("__main__", "builtins", None) else f"{module}.{name}"
    return _encodable(whole)[-MAX_NAME:]


def tags_from(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Tags as they travel: each once.

    Raises:
        SpecError: there are too many, or one is empty, too long, or no text.
    """
    found = tuple(dict.fromkeys([tags] if isinstance(tags, str) else tags))
    if len(found) > MAX_TAGS:
        raise SpecError(f"{len(found)} tags of a task", hint=f"{MAX_TAGS} at most")
    for tag in found:
        if not isinstance(tag, str) or not 1 <= len(tag) <= MAX_TAG or _encodable(tag) != tag:
            raise SpecError(f"the tag {tag!r:.200} of tasks", hint=f"text of 1 to {MAX_TAG} characters")
    return found


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
