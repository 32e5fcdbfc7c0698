"""Sends one message on one route; blocking, within the deadlines of mail and webhooks.

Secrets (URLs that are one, tokens, passwords) are read from their files at each message, and are in no error.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

from hal.core.model import HALError, UnreachableError, one_line
from hal.core.model.alert_config import AlertsSection, RouteSection, mail_address_of
from hal.core.model.notification import check_url
from hal.planes.observability.alerts.messages import mail_text, manager_body, slack_body, subject_of, webhook_body
from hal.planes.observability.alerts.telling import Message
from hal.runtime.mail import MailServer, send_mail
from hal.runtime.regular_files import read_regular
from hal.runtime.webhook import post

MAX_SECRET_BYTES: Final = 4_096
MANAGER_PATH: Final = "/api/v2/alerts"


def send(
    section: AlertsSection, route: RouteSection, message: Message, instance: str, message_id: str, now_ms: int
) -> None:
    """Send it.

    Raises:
        HALError: it was not taken, or a file of the route cannot be read.
    """
    if route.kind == "mail":
        _mail(section, route, message, message_id)
        return
    url = route.url or _secret(route.url_file, f"url_file of route {route.name}")
    headers = {}
    if route.token_file:
        headers["Authorization"] = f"Bearer {_secret(route.token_file, f'token_file of route {route.name}')}"
    body: Any
    if route.kind == "alertmanager":
        url, body = url.rstrip("/") + MANAGER_PATH, manager_body(message, instance, now_ms)
    else:
        body = slack_body(message) if route.kind == "slack" else webhook_body(message, instance)
    try:
        check_url(url)
    except HALError:
        raise UnreachableError(f"route {route.name}: what its file holds is not a URL") from None
    host = (urlsplit(url).hostname or "").lower().rstrip(".")
    # The operator has named this URL: its host may have any address.
    post(url, json.dumps(body).encode(), (host,), authorities=section.authorities, headers=headers)


def _mail(section: AlertsSection, route: RouteSection, message: Message, message_id: str) -> None:
    address = mail_address_of(section)
    if address is None:
        raise UnreachableError("observability.alerts.smtp: there is no mail server")
    server = MailServer(
        host=address[0],
        port=address[1],
        security=section.smtp_security,
        sender=section.sender,
        user=section.smtp_user,
        password_file=section.smtp_password_file,
        authorities=section.authorities,
    )
    failed: list[HALError] = []
    for to in route.to:
        try:
            send_mail(server, to, subject_of(message), mail_text(message), message_id, {"X-HAL-Alert": message.rule})
        except HALError as error:
            failed.append(error)
    if len(failed) == len(route.to):  # else it would come again to those who have it
        raise failed[0]


def _secret(file: str, what: str) -> str:
    try:
        text = read_regular(file, MAX_SECRET_BYTES, follow=True).decode("ascii").strip()
    except (OSError, ValueError, HALError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise UnreachableError(f"{what} cannot be read: {one_line(str(reason), 100)}") from None
    if not text.isprintable() or " " in text or not text:
        raise UnreachableError(f"{what}: it holds no single word")
    return text
