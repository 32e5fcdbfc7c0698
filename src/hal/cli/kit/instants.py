"""Instants of options that look back: `2h` ago, or a point in time."""

from __future__ import annotations

import time


def ago_ms(text: str, option: str) -> int:
    """Milliseconds since 1970 of an instant as `parse_instant` reads it (`18:00` is the last one), or of `2h` (so long
    ago); not before 1970.

    Raises:
        SpecError: it is neither; names the option.
    """
    from hal.client.instants import parse_instant
    from hal.core.model import SpecError, parse_duration, shown

    now_ms = round(time.time() * 1000)
    try:
        return parse_instant(text, field=option, now_ms=now_ms, past=True)
    except SpecError:
        try:
            return max(now_ms - int(parse_duration(text, field=option)), 0)
        except SpecError as error:
            if text.strip().replace(".", "", 1).isdecimal():
                raise  # a number without its unit
            raise SpecError(
                f"{option}: '{shown(text)}' is neither a duration nor an instant",
                hint="write it like 2h, yesterday, 08:00 or 2030-01-31T18:00",
            ) from error
