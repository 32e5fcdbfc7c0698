"""Values of the model as JSON: msgspec's hooks, and the canonical text; apart from the codec, which loads all specs.

Pure.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hal.core.model.errors import SpecError
from hal.core.model.resources import Resources
from hal.core.model.units import Duration, parse_duration


def enc_hook(value: Any) -> Any:
    """msgspec's hook for the model's own types."""
    if isinstance(value, Resources):
        return value.plain()
    if isinstance(value, Duration):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def dec_hook(kind: type, value: Any) -> Any:
    """msgspec's hook for the model's own types; accepts the forms that people write."""
    try:
        if kind is Duration:
            return parse_duration(value, field="duration")
        if kind is Resources:
            return Resources.parse(value)
    except SpecError as error:
        # msgspec adds the path to ValueErrors only; `convert` unwraps the SpecError behind it.
        raise ValueError(error.message) from error
    raise NotImplementedError(f"{kind.__name__} has no JSON form")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic")


def to_json(value: Any) -> bytes:
    """Encode any value of the model as canonical JSON."""
    return _ENCODER.encode(value)
