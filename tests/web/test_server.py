"""The page's server: who is let in, what each sees, what is shared, which requests of other pages are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hal.core.model import SpecError
from hal.core.model.web_config import WebSection, check_web
from hal.web.assets import SHELL, load_assets
from hal.web.callers import cookie_of
from hal.web.front import answers_to, host_name
from hal.web.live import _Loop, _Page
from hal.web.rows import CHANGES
from tests.daemons.controller.access.people import make_token
from tests.web.serving import ORIGIN, Web, on_web


def test_strangers_get_files_and_nothing_else(hal_home: Path) -> None:
    """The page itself holds nobody's data; whatever does is refused without a session."""

    async def body(web: Web) -> None:
        browser = web.browser()
        for path in ("/", "/jobs/7", "/sign-in"):
            page = await browser.http.get(path)
            assert (page.status_code, page.content) == (200, load_assets()[SHELL].body)
            assert "script-src 'self'" in page.headers["content-security-policy"]
        for path in ("/api/session", "/api/live", "/api/controller/v1/jobs", "/api/collector/v1/alerts"):
            assert (await browser.http.get(path)).status_code == 401, path
        assert (await browser.http.get("/static/..%2fserver.py")).status_code == 404
        assert (await browser.http.get("/static/js/nothing.js")).status_code == 404
        assert (await browser.http.post("/jobs")).status_code == 403

    on_web(hal_home, body)


def test_each_sees_what_the_api_shows_them(hal_home: Path) -> None:
    """Two users and an operator who ask for the same list at the same time get three lists."""

    async def body(web: Web) -> None:
        for user in ("alice", "bob"):
            assert len(await web.hal.submit({"command": ["true"], "user": user, "name": f"of-{user}"})) == 1
        alice, bob, boss = await web.person("alice"), await web.person("bob"), await web.person("eve", role="operator")
        seen = {}
        for name, browser in (("alice", alice), ("bob", bob), ("boss", boss)):
            seen[name] = [job["name"] for job in (await browser.get("jobs")).json()["jobs"]]
        assert seen == {"alice": ["of-alice"], "bob": ["of-bob"], "boss": ["of-bob", "of-alice"]}
        assert [(await alice.get(f"jobs/{job}")).status_code for job in (1, 2)] == [200, 404]
        assert (await alice.change("jobs/cancel", {"ids": ["2"]})).json()["results"][0]["code"] == "not-found"
        assert (await bob.change("nodes/cordon", {"nodes": ["n1"]})).status_code == 403

    on_web(hal_home, body)


def test_those_who_are_shown_the_same_share_answers_until_one_changes_something(hal_home: Path) -> None:
    """Two browsers of one user: the second is answered as the first was; after a change both are asked for anew."""

    async def body(web: Web) -> None:
        (job,) = await web.hal.submit({"command": ["true"], "user": "alice"})
        one, other = await web.person("alice"), await web.person("alice")
        first = await one.get("jobs")
        etag = first.headers["etag"]
        shared = next(iter(web.page.web.answers.kept.values()))
        await web.hal.submit({"command": ["true"], "user": "alice"})
        second = await other.get("jobs")
        assert next(iter(web.page.web.answers.kept.values())) is shared, "the controller was asked again"
        assert (len(web.page.web.answers.kept), second.headers["etag"]) == (1, etag)
        assert (await other.get("jobs", **{"if-none-match": etag})).status_code == 304
        assert (await one.change("jobs/hold", {"ids": [job]})).status_code == 200
        newer = (await other.get("jobs")).json()["jobs"]
        assert ([view["id"] for view in newer], newer[1]["held"]) == (["2", "1"], True)
        assert (await other.get("jobs", **{"if-none-match": etag})).status_code == 200

    on_web(hal_home, body)


def test_a_sign_in_link_opens_one_session(hal_home: Path) -> None:
    """The owner's link works once; the session acts as the owner, and ends when they sign out."""

    async def body(web: Web) -> None:
        key = web.page.web.sessions.new_key()
        owner, late = web.browser(), web.browser()
        signed = await owner.sign_in(key=key)
        cookie = signed.headers["set-cookie"]
        assert (signed.status_code, signed.json()["role"]) == (201, "admin")
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
        assert (await late.sign_in(key=key)).status_code == 401
        assert (await late.sign_in(key="guessed")).status_code == 401
        assert (await owner.get("nodes")).status_code == 200
        await owner.http.post("/api/sign-out", headers={"x-hal-csrf": owner.csrf})
        owner.http.cookies.set(*cookie.split(";")[0].split("=", 1))
        assert (await owner.get("nodes")).status_code == 401

    on_web(hal_home, body)


def test_a_session_ends_with_its_token(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was revoked opens nothing here after `ASK_EVERY_MS`; a wrong one opens nothing at all."""
    monkeypatch.setattr("hal.web.sessions.ASK_EVERY_MS", 0)

    async def body(web: Web) -> None:
        browser = web.browser()
        assert (await browser.sign_in(token="hal_wrong")).status_code == 401
        assert (await browser.sign_in(token="with\r\nlines")).status_code == 401
        made = await make_token(web.hal, "alice")
        assert (await browser.sign_in(token=made["secret"])).json()["user"] == "alice"
        assert (await browser.get("jobs")).status_code == 200
        await web.hal.http.post(f"/v1/api-tokens/{made['token']['id']}/revoke")
        assert (await browser.get("jobs")).status_code == 401
        assert made["secret"] not in web.hal.runtime.paths.log_file("web").read_text()

    on_web(hal_home, body)


def test_requests_of_other_pages_change_nothing(hal_home: Path) -> None:
    """Without the CSRF key, from another origin or another site: refused, though the cookie is there."""

    async def body(web: Web) -> None:
        (job,) = await web.hal.submit({"command": ["true"], "user": "alice"})
        alice = await web.person("alice")
        cancel, asked = "/api/controller/v1/jobs/cancel", {"ids": [job]}
        for headers in (
            {},
            {"x-hal-csrf": "guessed"},
            {"x-hal-csrf": alice.csrf, "origin": "http://evil.example"},
            {"x-hal-csrf": alice.csrf, "origin": "null"},
            {"x-hal-csrf": alice.csrf, "sec-fetch-site": "cross-site"},
            {"x-hal-csrf": alice.csrf, "sec-fetch-site": "same-site"},
        ):
            assert (await alice.http.post(cancel, json=asked, headers=headers)).status_code == 403, headers
        strange = {"origin": "http://evil.example"}
        assert (await alice.http.post("/api/sign-in", json={"token": "x"}, headers=strange)).status_code == 403
        assert (await alice.get(f"jobs/{job}")).json()["state"] == "pending"
        assert (await alice.change("jobs/cancel", asked)).status_code == 200

    on_web(hal_home, body)


def test_a_name_that_somebody_else_gave_this_address_is_refused(hal_home: Path) -> None:
    """DNS rebinding: `evil.example` that resolves to this machine gets neither the page nor the API."""

    async def body(web: Web) -> None:
        alice = await web.person("alice")
        for host in ("evil.example", "evil.example:4280", "127.0.0.1.evil.example", "", "localhost:x"):
            for path in ("/", "/api/session"):
                assert (await alice.http.get(path, headers={"host": host})).status_code == 403, host
        for host in ("127.0.0.1:4280", "LOCALHOST", "[::1]:4280"):
            assert (await alice.http.get("/", headers={"host": host})).status_code == 200, host

    on_web(hal_home, body)


def test_only_what_the_page_offers_is_passed_on(hal_home: Path) -> None:
    """Changes beyond the list are not reached, whatever the caller's rights; nor are other paths of the controller."""

    async def body(web: Web) -> None:
        owner = web.browser()
        await owner.sign_in(key=web.page.web.sessions.new_key())
        assert "/v1/api-tokens" not in CHANGES
        for path in ("jobs", "api-tokens", "policy", "jobs/remove", "jobs/evict", "tokens"):
            assert (await owner.change(path, {})).status_code in (404, 405), path
        for path in ("secrets", "api-tokens", "../v1/secrets", "jobs/%2e%2e%2fsecrets/x/y"):
            assert (await owner.get(path)).status_code in (400, 404, 405), path
        assert (await owner.http.post("/v1/sign-in-links", headers={"x-hal-csrf": owner.csrf})).status_code != 200

    on_web(hal_home, body)


def test_live_events_have_the_nodes_and_then_what_changes(hal_home: Path) -> None:
    """The whole first; then a node that was cordoned, by its position."""

    async def body(web: Web) -> None:
        await web.hal.agent("n1")
        owner = web.browser()
        await owner.sign_in(key=web.page.web.sessions.new_key())
        session = next(iter(web.page.web.sessions.by_ids.values()))
        stream = await web.page.web.live.follow(session, frozenset({"pulse", "nodes"}))
        text, changed = "", False
        async for piece in stream:
            text += piece.decode()
            if "event: nodes\n" in text and not changed:
                changed = True
                await owner.change("nodes/cordon", {"nodes": ["n1"], "reason": "cordon test"})
            if "event: node-changes" in text and "cordon test" in text:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        assert '"names":["n1"]' in text
        assert '"i":[0]' in text.split("event: node-changes")[1]

    on_web(hal_home, body)


@pytest.mark.parametrize(
    "others", ['app={"a":1}; ', "a b=c; ", "flag; ", "k[0]=1; k@x=2; ", 'open="quote; ', "p=\xe9; ", "hal-web-42=old; "]
)
def test_cookies_of_other_servers_on_this_host_sign_nobody_out(others: str) -> None:
    """Browsers send them to all ports of a host."""
    headers = {b"cookie": f"{others}hal-web-4280=key; last=1".encode("latin-1")}
    assert cookie_of(headers, "hal-web-4280") == "key"
    assert cookie_of({b"cookie": others.encode("latin-1")}, "hal-web-4280") == ""


def test_a_page_that_does_not_read_costs_nothing_while_the_controller_is_away(hal_home: Path) -> None:
    """Of a thousand troubles at most eight wait; then it is sent the whole."""

    async def body(web: Web) -> None:
        await web.person("alice")
        session = next(iter(web.page.web.sessions.by_ids.values()))
        loop, page = _Loop(web.hal.runtime), _Page(session, frozenset({"pulse"}))
        page.fresh = False
        loop.enter(page)
        most = 0
        for _ in range(1_000):
            loop._send(b"trouble", b"{}")
            most = max(most, len(page.waiting))
        assert (most, page.fresh) == (8, True)

    on_web(hal_home, body)


def test_pages_are_told_when_the_controllers_answer_is_not_understood(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has another version; the loop goes on."""
    monkeypatch.setattr("hal.web.live._COUNTS", msgspec.json.Decoder(int))

    async def body(web: Web) -> None:
        await web.person("alice")
        session = next(iter(web.page.web.sessions.by_ids.values()))
        stream = await web.page.web.live.follow(session, frozenset({"pulse"}))
        async for piece in stream:
            if b"event: trouble" in piece:
                break
        await stream.aclose()  # type: ignore[attr-defined]

    on_web(hal_home, body)


def test_pages_end_with_the_loop_that_feeds_them(hal_home: Path) -> None:
    """So that browsers come again, and get another one."""

    async def body(web: Web) -> None:
        await web.person("alice")
        session = next(iter(web.page.web.sessions.by_ids.values()))
        live = web.page.web.live
        stream = await live.follow(session, frozenset({"pulse"}))
        async for piece in stream:
            if b"event: pulse" in piece:
                task = live._loop(session).task
                assert task is not None
                task.cancel()
        assert session.rights in live._loops

    on_web(hal_home, body)


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:80", "a"), ("A.b", "a.b"), ("[::1]:80", "::1"), ("a:b", ""), ("[::1", ""), ("", ""), ("a.", "a")],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    """Without its port; '' where it is malformed."""
    assert host_name(host) == name


def test_a_server_on_all_addresses_answers_to_addresses_but_not_to_any_name() -> None:
    """Nobody can give an address in numbers another meaning; a name they can."""
    check = answers_to("0.0.0.0", ("hal.example.org",))
    assert [check(name) for name in ("10.0.0.7", "hal.example.org", "evil.example", "")] == [True, True, False, False]


def test_tokens_do_not_go_over_the_network_in_plain() -> None:
    """Other machines are served with TLS, or on request without."""
    with pytest.raises(SpecError, match="without TLS"):
        check_web(WebSection(listen="0.0.0.0:4280"))
    check_web(WebSection(listen="0.0.0.0:4280", plain=True))
    check_web(WebSection(listen="[::1]:4280"))
    with pytest.raises(SpecError, match="belong together"):
        check_web(WebSection(tls_cert="a.pem"))


def test_the_page_names_no_other_place() -> None:
    """No address of another server in any file of the page, but names of XML spaces; no inline script or style."""
    for path, asset in load_assets().items():
        if path.endswith((".js", ".css", ".html")) and not path.startswith("vendor/"):
            text = asset.body.decode().replace("http://www.w3.org/", "")
            assert "http://" not in text, path
            assert "https://" not in text, path
            assert "innerHTML" not in text, path
    assert b"<style" not in load_assets()[SHELL].body
    assert ORIGIN.startswith("http://127.")
