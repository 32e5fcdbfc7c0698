"""Sends one mail to the site's mail server; blocking, with a deadline for each answer.

The server is the operator's choice. What users say (names of jobs) is in headers only as one encoded line.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Final, NamedTuple

from hal.core.model import HALError, UnreachableError, one_line
from hal.runtime.regular_files import read_regular

ANSWER_S: Final = 10.0
"""Longest wait for each answer of the server."""
MAX_SUBJECT_CHARS: Final = 200
MAX_PASSWORD_BYTES: Final = 4_096
LOGIN_CODES: Final = (530, 534, 535, 538)
"""Answers about who sends (RFC 4954): the site's setting is wrong and not the mail, so it is tried again."""


class MailServer(NamedTuple):
    """How the site sends mail."""

    host: str
    port: int
    security: str
    """`starttls`, `tls` (from the first byte), or `none`."""
    sender: str
    user: str = ""
    password_file: str = ""
    authorities: str = ""
    """A PEM file; empty: those of the machine."""


class MailRefused(HALError):
    """The server will not take it, however often it is asked."""

    code = "refused"


def send_mail(
    server: MailServer, to: str, subject: str, text: str, message_id: str, headers: Mapping[str, str]
) -> None:
    """Have the server take one mail.

    Raises:
        MailRefused: it refused the sender, the recipient or the mail for good.
        UnreachableError: it does not answer, or refused for now, or HAL's login; or the password cannot be read.
    """
    message = EmailMessage(policy=SMTP)
    for name, value in {
        "From": server.sender,
        "To": to,
        "Subject": one_line(subject, MAX_SUBJECT_CHARS),
        "Date": formatdate(),
        "Message-ID": message_id,
        "Auto-Submitted": "auto-generated",
        **{name: one_line(value, MAX_SUBJECT_CHARS) for name, value in headers.items()},
    }.items():
        message[name] = value
    message.set_content(text)
    password = _password(server)
    try:
        with _connected(server) as client:
            if server.user:
                client.login(server.user, password)
            client.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()), (0, b""))
        raise _refusal(code, said) from error
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, error.smtp_error) from error
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise UnreachableError(f"mail server {server.host}:{server.port}: {one_line(str(error), 200)}") from error


def _password(server: MailServer) -> str:
    if not server.user:
        return ""
    try:
        return read_regular(server.password_file, MAX_PASSWORD_BYTES, follow=True).decode().strip()
    except (OSError, ValueError, HALError) as error:
        raise UnreachableError(f"notifications.smtp_password_file: {one_line(str(error), 200)}") from error


def _connected(server: MailServer) -> smtplib.SMTP:
    context = ssl.create_default_context(cafile=server.authorities or None)
    if server.security == "tls":
        return smtplib.SMTP_SSL(server.host, server.port, timeout=ANSWER_S, context=context)
    client = smtplib.SMTP(server.host, server.port, timeout=ANSWER_S)
    if server.security == "starttls":
        try:
            client.starttls(context=context)
        except BaseException:
            client.close()
            raise
    return client


def _refusal(code: int, said: bytes | str) -> HALError:
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    words = f"the mail server answered {code} {one_line(text, 200)}"
    if code in LOGIN_CODES:
        return UnreachableError(
            f"{words}: smtp_user and smtp_password_file of [notifications] in hal.toml say who sends"
        )
    return MailRefused(words) if 500 <= code < 600 else UnreachableError(words)
