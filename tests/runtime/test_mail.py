"""Mail over a real mail server with TLS, whose certificate the site's own authority gave, and a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.core.model import UnreachableError
from hal.runtime.mail import MailRefused, MailServer, send_mail
from tests.daemons.controller.notices import servers
from tests.runtime.site_certificates import Site

LOGIN = ("hal", "pass word")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def send(port: int, security: str, site: Site | None, password: Path | None = None) -> None:
    """Send one mail; with a password after a login."""
    server = MailServer(
        host="localhost",
        port=port,
        security=security,
        sender="hal@example.org",
        user=LOGIN[0] if password else "",
        password_file=str(password or ""),
        authorities=str(site.authority) if site else "",
    )
    send_mail(server, "ada@example.org", "Job 7 failed", "It failed.\n", "<1@hal>", {})


def password_file(tmp_path: Path, text: str) -> Path:
    """A file with that password, as an editor leaves it."""
    file = tmp_path / "password"
    file.write_text(f"{text}\n")
    return file


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_is_sent_over_tls_after_a_login(tmp_path: Path, site: Site, security: str) -> None:
    """The server takes the login over TLS only, and no mail without one."""
    server = servers.MailServer(site.server("localhost"), from_start=security == "tls", login=LOGIN)
    with servers.served(server):
        send(server.port, security, site, password_file(tmp_path, LOGIN[1]))
    assert [(one["To"], one["Subject"]) for one in server.mails] == [("ada@example.org", "Job 7 failed")]


def test_a_wrong_login_is_a_fault_of_the_site_and_drops_no_mail(tmp_path: Path, site: Site) -> None:
    """A wrong password, none, or a file that is not there: all are tried again, and say what to look at."""
    server = servers.MailServer(site.server("localhost"), login=LOGIN)
    with servers.served(server):
        for password, says in (
            (password_file(tmp_path, "guess"), "535 no such user or password: smtp_user and smtp_password_file"),
            (None, "530 log in first: smtp_user and smtp_password_file"),
            (tmp_path / "gone", "smtp_password_file: .*No such file"),
        ):
            with pytest.raises(UnreachableError, match=says):
                send(server.port, "starttls", site, password)
    assert server.mails == []


def test_a_refused_recipient_is_refused_for_good(site: Site) -> None:
    server = servers.MailServer(site.server("localhost"))
    server.refuse["ada@example.org"] = "550 nobody of that name"
    with servers.served(server), pytest.raises(MailRefused, match="550 nobody of that name"):
        send(server.port, "starttls", site)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_safety_nothing_is_said_to_a_server_that_another_authority_certifies(
    tmp_path: Path, site: Site, security: str
) -> None:
    """Neither the password nor the mail."""
    server = servers.MailServer(Site(tmp_path, "other").server("localhost"), from_start=security == "tls", login=LOGIN)
    with servers.served(server), pytest.raises(UnreachableError, match="certificate verify failed"):
        send(server.port, security, site, password_file(tmp_path, LOGIN[1]))
    assert server.mails == []


def test_safety_a_certificate_of_another_host_is_not_enough(tmp_path: Path, site: Site) -> None:
    server = servers.MailServer(site.server("mail.example.org"))
    with servers.served(server), pytest.raises(UnreachableError, match="not valid for 'localhost'"):
        send(server.port, "starttls", site)
    assert server.mails == []


def test_safety_a_server_without_tls_gets_no_mail_where_tls_is_asked_for(site: Site) -> None:
    """As a network would offer that strips STARTTLS."""
    server = servers.MailServer()
    with servers.served(server), pytest.raises(UnreachableError, match="STARTTLS"):
        send(server.port, "starttls", site)
    assert server.mails == []
