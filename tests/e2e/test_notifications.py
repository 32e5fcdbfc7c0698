"""docs/notifications.md as it stands, on a real HAL with a mail server and a web server on loopback."""

from __future__ import annotations

from pathlib import Path

from tests.daemons.controller.notices.servers import MailServer, WebServer, served
from tests.e2e.conftest import LiveHal, until
from tests.e2e.test_documents import run_page


def test_the_commands_of_the_page_about_notifications_work(own_hal: LiveHal, tmp_path: Path) -> None:
    """A mail of `--notify`, one of #SBATCH lines, a webhook; and a host that is not allowed."""
    mail, web = MailServer(), WebServer()
    with served(mail, web):
        own_hal.root.mkdir(exist_ok=True)
        (own_hal.root / "hal.toml").write_text(
            f'[notifications]\nsmtp = "127.0.0.1:{mail.port}"\nsmtp_security = "none"\nsender = "hal@example.org"\n'
            'webhook_hosts = ["localhost"]\n'
        )
        own_hal.up("--cpus", "2", "--memory", "1GiB")
        out = run_page("docs/notifications.md", own_hal, tmp_path, HOOK=web.url)
        assert "refused: exit code 2" in out
        until(lambda: len(mail.mails) == 2 and len(web.bodies) == 1, "two mails and a webhook came")
    subjects = [one["Subject"] for one in mail.mails]
    assert subjects == ["[HAL] Job 1 fit succeeded", "[HAL] Job 2 from-slurm failed"]
    assert web.bodies[0]["moment"] == "succeeded"
