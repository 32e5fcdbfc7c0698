"""Notifications of jobs: at which moments a message is sent, and to whom.

Pure. As text `failed,timed-out:ann@example.org`: moments, a colon, a mail address, the name of a user, or the URL of a
webhook. Whether a site sends any is its controller's to say.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from hal.core.model.errors import SpecError, shown

MAX_NOTIFICATIONS: Final = 8
"""Of one job."""
MAX_URL_CHARS: Final = 2_000
MAX_ADDRESS_CHARS: Final = 254
"""RFC 5321."""
EACH_TASK: Final = "each-task"
"""Among the moments of the text form: sets `each_task`."""

_ADDRESS: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HINT: Final = "write STATE[,STATE]:TARGET, like failed,timed-out:ann@example.org or ended:https://example.org/hook"


class Moment(StrEnum):
    """When a message is sent."""

    RUNNING = "running"
    """Its first task has started; again after a requeue."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    """It runs again, after a person, a retry, a preemption or a lost node; of an array, if it had ended."""


ENDS: Final = (Moment.SUCCEEDED, Moment.FAILED, Moment.TIMED_OUT, Moment.CANCELLED)
_GROUPS: Final[dict[str, tuple[Moment, ...]]] = {
    **{one.value: (one,) for one in Moment},
    "ended": ENDS,
    "all": tuple(Moment),
}


class Kind(StrEnum):
    """What a target is."""

    MAIL = "mail"
    WEBHOOK = "webhook"


class Notification(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whom to send a message at which moments."""

    on: Annotated[tuple[Moment, ...], Meta(description="moments, at least one")]
    to: Annotated[str, Meta(description="mail address, user name, or URL of a webhook")]
    each_task: Annotated[bool, Meta(description="of an array: a message for each attempt that ended so, too")] = False

    @property
    def kind(self) -> Kind:
        """What its target is."""
        return kind_of(self.to)


def kind_of(target: str) -> Kind:
    """Whether a target is a mail address (or a user), or a webhook."""
    return Kind.WEBHOOK if "://" in target else Kind.MAIL


def parse_notification(text: str) -> dict[str, Any]:
    """Parse `failed,timed-out:ann@example.org`: plain data of a `Notification`.

    Raises:
        SpecError: no such moment, or no target.
    """
    words, colon, target = text.partition(":")
    if not colon or not target.strip():
        raise SpecError(f"notify: '{shown(text)}' names no target", hint=_HINT)
    moments: list[str] = []
    each_task = False
    for word in (one.strip().lower() for one in words.split(",")):
        if word == EACH_TASK:
            each_task = True
        elif word in _GROUPS:
            moments += _GROUPS[word]
        else:
            known = ", ".join((*_GROUPS, EACH_TASK))
            raise SpecError(f"notify: '{shown(word)}' is not a state", hint=f"states: {known}")
    found: dict[str, Any] = {"on": list(dict.fromkeys(moments)), "to": target.strip()}
    return found | ({"each_task": True} if each_task else {})


def check_notifications(notify: tuple[Notification, ...]) -> None:
    """Check that each is well formed.

    Raises:
        SpecError: names what is not.
    """
    if len(notify) > MAX_NOTIFICATIONS:
        raise SpecError(f"notify: {len(notify)}; at most {MAX_NOTIFICATIONS} are allowed")
    for one in notify:
        if not one.on:
            raise SpecError(f"notify: '{shown(one.to)}' is notified of nothing", hint=_HINT)
        if one.kind is Kind.WEBHOOK:
            check_url(one.to)
        elif not (_USER.fullmatch(one.to) or (_ADDRESS.fullmatch(one.to) and len(one.to) <= MAX_ADDRESS_CHARS)):
            raise SpecError(f"notify: '{shown(one.to)}' is not a mail address, a user or a URL", hint=_HINT)


def check_url(url: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path (with query) of a webhook.

    Raises:
        SpecError: it is not the URL of one.
    """
    from urllib.parse import urlsplit

    if len(url) > MAX_URL_CHARS or not url.isascii() or not url.isprintable() or " " in url:
        raise SpecError(f"notify: '{shown(url)}' is not a URL", hint=f"at most {MAX_URL_CHARS} ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SpecError(f"notify: '{shown(url)}' is not a URL", hint=_HINT) from None
    if parts.scheme not in ("http", "https") or not host:
        raise SpecError(
            f"notify: '{shown(url)}' is not the URL of a webhook", hint="it begins with https:// or http://"
        )
    if "@" in parts.netloc:
        raise SpecError("notify: a URL with a user or a password", hint="put a token into its path or query")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path
