"""Structured logs: one JSON object per line, in a bounded file; secrets are hidden by the name of their key.

Lines of the standard library's loggers (uvicorn, SQLAlchemy, Alembic) go to the same file.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, cast

import msgspec

from hal.runtime.interface import Logger
from hal.runtime.logfile import LogFile

_without_rich = sys.modules.setdefault("rich", cast(Any, None)) is None
import structlog  # noqa: E402

if _without_rich:  # structlog loads it, 40 ms, for tracebacks as no log of HAL has them
    del sys.modules["rich"]

SECRET_NAMES: Final = re.compile(
    r"(^|[_-])(token|secret|secrets|password|passwd|authorization|cookie|credential|credentials|api_?key|private_?key)$",
    re.IGNORECASE,
)
"""Keys whose values are not written."""
HIDDEN: Final = "[hidden]"
MAX_REDACTION_DEPTH: Final = 8
MAX_VALUE_CHARS: Final = 8_192
"""A longer text is cut."""

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def open_log(file: LogFile, process: str, *, level: str = "info") -> Logger:
    """Create the process's logger, which writes to `file`; it also captures the standard library's logging.

    Args:
        file: destination.
        process: `controller`, `agent-n1`, …; on every line.
        level: the least severe level that is written: debug, info, warning or error.
    """
    logger = structlog.wrap_logger(
        _Lines(file),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide_secrets,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )
    logger = logger.bind(process=process)
    root = logging.getLogger()
    root.handlers[:] = [_Forwarding(cast(Logger, logger))]
    root.setLevel(logging.WARNING)
    return cast(Logger, logger)


def hide_secrets(_logger: Any, _method: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: values under names of `SECRET_NAMES` become `[hidden]`, in nested tables too."""
    return {key: _hidden(key, value, 0) for key, value in values.items()}


def _hidden(key: Any, value: Any, depth: int) -> Any:
    if isinstance(key, str) and SECRET_NAMES.search(key) and value not in (None, ""):
        return HIDDEN
    if depth >= MAX_REDACTION_DEPTH:
        return str(value)[:MAX_VALUE_CHARS]
    if isinstance(value, dict):
        return {str(k): _hidden(k, v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden("", v, depth + 1) for v in value]
    if isinstance(value, str):
        if len(value) > MAX_VALUE_CHARS:
            value = f"{value[:MAX_VALUE_CHARS]}… ({len(value)} characters)"
        # File names may contain invalid UTF-8.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return value


def _render(_logger: Any, _method: str, values: MutableMapping[str, Any]) -> str:
    ordered = {key: values.pop(key) for key in ("timestamp", "level", "process", "event") if key in values}
    line = ordered | dict(sorted(values.items()))
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except (TypeError, ValueError, OverflowError):
        # Some value cannot be encoded as JSON (an enormous integer, text inside a set): a log line must not fail its
        # writer.
        return msgspec.json.encode({key: ascii(value) for key, value in line.items()}).decode()


class _Lines:
    """The object that structlog calls with a rendered line."""

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def msg(self, line: str) -> None:
        self._file.write_line(line)

    debug = info = warning = error = critical = log = msg


class _Forwarding(logging.Handler):
    """Forwards the standard library's records as lines of our log."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        write = self._logger.error if record.levelno >= logging.ERROR else self._logger.warning
        values: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            values["exc_info"] = record.exc_info[1]
        write(record.getMessage(), **values)
