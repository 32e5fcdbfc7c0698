"""Messages of jobs, from a real controller to a real mail server and a real web server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import StepId
from hal.daemons.controller.config import read_config
from hal.daemons.controller.service.notices import notices
from tests.daemons.controller.access.people import person
from tests.daemons.controller.notices.servers import MailServer, WebServer, listening
from tests.daemons.controller.running import Running, running

JOB: dict[str, Any] = {
    "name": "fit",
    "command": ["./fit", "--password", "hunter2"],
    "env": {"TOKEN": "hunter2"},
    "comment": "hunter2",
}
Body = Callable[[Running, MailServer, WebServer], Awaitable[None]]


def on_site(root: Path, body: Body, *, more: str = "", config: str | None = None) -> None:
    """A controller beside both servers; `more`: further settings."""

    async def main() -> None:
        mail, web = MailServer(), WebServer()
        async with listening(mail, web):
            text = (
                f'[notifications]\nsmtp = "127.0.0.1:{mail.port}"\nsmtp_security = "none"\nsender = "hal@example.org"\n'
                f'mail_domain = "example.org"\nwebhook_hosts = ["localhost"]\n{more}'
            )
            async with running(root, read_config(text if config is None else config)) as hal:
                await body(hal, mail, web)

    asyncio.run(main())


async def cancelled(hal: Running, *notify: str, **fields: Any) -> str:
    """A job that was submitted and cancelled; its id."""
    (job,) = await hal.submit({**JOB, "notify": list(notify), **fields})
    assert (await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})).status_code == 200
    return job


async def state(hal: Running) -> dict[str, Any]:
    """How it goes."""
    found: dict[str, Any] = (await hal.http.get("/v1/notifications")).json()
    return found


async def counted(hal: Running, **wanted: int) -> None:
    """Until the counts are those."""
    while True:
        found = await state(hal)
        if {name: found[name] for name in wanted} == wanted:
            return
        await hal.runtime.sleep(20)


def test_a_mail_says_how_a_job_ended_and_nothing_secret(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        job = await cancelled(hal, "ended:ann@example.org")
        await counted(hal, sent=1)
        (got,) = mail.mails
        assert (mail.recipients, got["To"], got["From"]) == (["ann@example.org"], "ann@example.org", "hal@example.org")
        assert got["Subject"] == f"[HAL] Job {job} fit was cancelled"
        assert (got["Auto-Submitted"], got["X-HAL-Job"]) == ("auto-generated", job)
        assert f"hal show {job}" in got.get_content()
        assert "hunter2" not in got.as_string()
        assert web.bodies == []

    on_site(hal_home, body)


def test_a_webhook_gets_the_same_as_json(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        job = await cancelled(hal, f"cancelled:{web.url}")
        await counted(hal, sent=1)
        (got,) = web.bodies
        assert web.heads[0].startswith("POST /hook?token=hush HTTP/1.1\r\n")
        assert (got["text"], got["moment"], got["job"]) == (f"Job {job} fit was cancelled", "cancelled", job)
        assert "hunter2" not in str(got)

    on_site(hal_home, body)


def test_an_array_is_told_of_once_and_each_task_where_that_is_asked_for(hal_home: Path) -> None:
    """Two tasks, one of which fails: running and failed of the job; to the other target, the failed attempt, too."""

    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        agent = await hal.agent()
        notify = ["running,ended:ann@example.org", f"each-task,failed:{web.url}"]
        (job,) = await hal.submit({**JOB, "array": "0-1", "notify": notify})
        await agent.until(lambda one: len(one.started) == 2)
        for task, code in ((0, 0), (1, 3)):
            agent.end(StepId(int(job), task, 1, 0), code)
        await hal.ended(job)
        await counted(hal, sent=4)
        subjects = [one["Subject"] for one in mail.mails]
        assert subjects == [f"[HAL] Job {job} fit started", f"[HAL] Job {job} fit failed"]
        assert "1 succeeded, 1 failed" in mail.mails[1].get_content()
        assert sorted(one["text"] for one in web.bodies) == [f"Job {job} fit failed", f"Task {job}.1 fit failed"]

    on_site(hal_home, body)


def test_a_job_that_asks_for_other_moments_is_not_told_of(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        await cancelled(hal, "failed:ann@example.org")
        await cancelled(hal, "cancelled:ann")
        await counted(hal, sent=1)
        assert mail.recipients == ["ann@example.org"]
        assert "Job 2" in mail.mails[0]["Subject"]

    on_site(hal_home, body)


def test_a_job_that_runs_again_is_told_of_again(hal_home: Path) -> None:
    """It was cancelled, requeued and cancelled: three messages, each with an id of its own."""

    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        job = await cancelled(hal, f"requeued,cancelled:{web.url}")
        await counted(hal, sent=1)
        await hal.http.post("/v1/jobs/requeue", json={"ids": [job]})
        await counted(hal, sent=2)
        await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})
        await counted(hal, sent=3)
        assert [one["moment"] for one in web.bodies] == ["cancelled", "requeued", "cancelled"]
        assert len({one["id"] for one in web.bodies}) == 3

    on_site(hal_home, body)


def test_a_name_that_looks_like_headers_makes_none(hal_home: Path) -> None:
    """Names cannot have line ends; a reason of people can, and is one line."""

    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        (job,) = await hal.submit({**JOB, "name": "x:Bcc:eve@example.org", "notify": ["ended:ann@example.org"]})
        await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})
        await counted(hal, sent=1)
        assert mail.recipients == ["ann@example.org"]
        assert mail.mails[0]["Bcc"] is None

    on_site(hal_home, body)


def test_what_was_told_is_not_told_again_by_the_next_controller_and_the_rest_is(hal_home: Path) -> None:
    """The first controller sends one of two; the mail server refuses the other for now, and the next one sends it."""

    async def main() -> None:
        mail = MailServer()
        mail.refuse = {"bob@example.org": "451 later"}
        async with listening(mail):
            text = (
                f'[notifications]\nsmtp = "127.0.0.1:{mail.port}"\nsmtp_security = "none"\nsender = "h@example.org"\n'
            )
            async with running(hal_home, read_config(text)) as hal:
                await cancelled(hal, "ended:ann@example.org")
                await cancelled(hal, "ended:bob@example.org")
                await counted(hal, sent=1, waiting=1)
                while hal.controller._committer.store.notice(1) is None or _open(hal, 1):
                    await hal.runtime.sleep(20)
            mail.refuse = {}
            async with running(hal_home, read_config(text)) as hal:
                await counted(hal, sent=1)
        assert mail.recipients == ["ann@example.org", "bob@example.org"]

    def _open(hal: Running, job: int) -> bool:
        row = hal.controller._committer.store.notice(job)
        return row is None or row.open

    asyncio.run(main())


def test_what_is_refused_for_now_is_sent_again_and_for_good_is_dropped(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "FIRST_RETRY_MS", 1)
    monkeypatch.setattr(notices, "PAUSE_MS", 1)

    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        web.statuses = [503, 429]
        await cancelled(hal, f"ended:{web.url}")
        await counted(hal, sent=1, dropped=0)
        assert len(web.bodies) == 3
        assert len({one["id"] for one in web.bodies}) == 1
        web.statuses = [404]
        await cancelled(hal, f"ended:{web.url}")
        await counted(hal, sent=1, dropped=1)
        mail.refuse = {"gone@example.org": "550 no such user"}
        await cancelled(hal, "ended:gone@example.org")
        await counted(hal, dropped=2)
        assert "550 no such user" in (await state(hal))["last_error"]
        assert any("2 notifications dropped" in one for one in (await hal.http.get("/v1/health")).json()["warnings"])
        async with person(hal, "bob") as bob:
            assert (await bob.get("/v1/notifications")).json()["last_error"] == ""

    on_site(hal_home, body)


def test_a_target_that_never_answers_is_given_up(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "FIRST_RETRY_MS", 0)
    monkeypatch.setattr(notices, "PAUSE_MS", 1)

    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        web.statuses = [500] * notices.MAX_TRIES
        await cancelled(hal, f"ended:{web.url}")
        await counted(hal, sent=0, dropped=1)
        assert len(web.bodies) == notices.MAX_TRIES

    on_site(hal_home, body)


def test_a_redirect_is_not_followed(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        web.statuses, web.location = [302], web.url
        await cancelled(hal, f"ended:{web.url}")
        await counted(hal, dropped=1)
        assert len(web.bodies) == 1

    on_site(hal_home, body)


def test_a_user_and_all_together_send_so_many_in_an_hour(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        for user in ("ann", "ann", "bob", "eve"):
            await cancelled(hal, "ended:ann@example.org", user=user)
        await counted(hal, sent=2, dropped=2)

    on_site(hal_home, body, more="user_hour = 1\nall_hour = 2\n")


REFUSED = (
    ("ended:ann@evil.example", "mail to 'evil.example' is not allowed"),
    ("ended:http://example.org/x", "webhooks to 'example.org' are not allowed"),
    ("ended:http://169.254.169.254/latest", "webhooks to '169.254.169.254' are not allowed"),
    ("ended:http://ann:pw@localhost/x", "a URL with a user"),
    ("ended:ftp://localhost/x", "is not the URL of a webhook"),
    ("soon:ann@example.org", "'soon' is not a state"),
    ("ended:ann@example.org\r\nBcc: eve@example.org", "is not a mail address"),
    ("ended:", "names no target"),
)


def test_what_the_site_does_not_send_is_refused_with_the_reason(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        for notify, said in REFUSED:
            answer = await hal.http.post("/v1/jobs", json={**JOB, "notify": [notify]})
            assert (answer.status_code, said in answer.json()["detail"]) == (400, True), (notify, answer.text)
        assert (await hal.http.get("/v1/jobs")).json()["jobs"] == []

    on_site(hal_home, body, more='mail_domains = ["example.org"]\n')


def test_a_hal_that_sends_nothing_refuses_jobs_that_ask_for_messages(hal_home: Path) -> None:
    async def body(hal: Running, mail: MailServer, web: WebServer) -> None:
        answer = await hal.http.post("/v1/jobs", json={**JOB, "notify": ["ended:ann@example.org"]})
        assert (answer.status_code, answer.json()["detail"]) == (400, "notify: this HAL sends no mail")

    on_site(hal_home, body, config="")
