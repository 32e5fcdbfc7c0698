"""A plugin of pytest that puts HAL in the place of joblib's default process pool: joblib's own tests then run on it."""

from __future__ import annotations

import os
from typing import Any

from joblib import parallel

from hal.client.session import open_session
from hal.client.sessions.joblib_backend import HalBackend

SESSION = open_session(os.environ["SESSION_FILE"])


class InPlace(HalBackend):
    """What joblib's tests make without arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(SESSION, slots=2, **options)


del parallel.BACKENDS["hal"]
parallel.BACKENDS["loky"] = InPlace
