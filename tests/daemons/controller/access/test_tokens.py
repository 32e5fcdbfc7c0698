"""Tokens: shown once, kept as hashes, narrowed, expiring, revocable; and who comes in at which door."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hal.daemons.controller.access.tokens import META, Token, TokenBook, digest_of, row_of, secret_text
from hal.rest.rights import Role
from hal.store import Store
from tests.daemons.controller.access.people import make_token, person, with_secret
from tests.daemons.controller.api.test_rest import problem
from tests.daemons.controller.running import Running, on_controller

HOUR_MS = 3_600_000


def token(**fields: object) -> Token:
    """Of bob, for an hour."""
    known = {"id": "0123456789ab", "digest": digest_of("s3"), "user": "bob", "role": Role.USER}
    return Token(**{**known, "created_ms": 0, "expires_ms": HOUR_MS, **fields})  # type: ignore[arg-type]


@given(st.text(max_size=300))
def test_safety_no_text_but_the_tokens_own_opens_it(text: str) -> None:
    """Any text, also one that begins like the token, finds a token only when it is that token."""
    book = TokenBook()
    book.put(token())
    whole = secret_text("0123456789ab", "s3")
    for shown in (text, f"hal_0123456789ab_{text}", whole + text):
        found = book.shown(shown)
        assert found is None or shown == whole
    assert book.shown(whole) == token()


def test_a_book_reads_the_rows_that_it_gave() -> None:
    """The row of a token, among other facts of the store, gives the same token."""
    known = token(note="n", used_ms=HOUR_MS, revoked_ms=5)
    book = TokenBook()
    book.load({"shares": "{}", **row_of(known)})
    assert book.all() == [known]


def test_a_token_is_shown_once_and_kept_as_a_hash(hal_home: Path) -> None:
    """Neither the list nor any file holds the secret; a restart knows the token; its use is kept to the hour."""
    secrets: list[str] = []

    async def make(hal: Running) -> None:
        made = await make_token(hal, "bob", note="laptop")
        secrets.append(made["secret"])
        async with with_secret(hal, made["secret"]) as bob:
            who = (await bob.get("/v1/whoami")).json()
            assert (who["user"], who["role"], who["peer"], who["token"]) == (
                "bob",
                "user",
                "192.0.2.7",
                made["token"]["id"],
            )
        await hal.until(lambda: hal.api.tokens.all()[0].used_ms is not None)
        listed = (await hal.http.get("/v1/api-tokens")).json()["tokens"]
        assert [(one["user"], one["note"], one["used_ms"] % HOUR_MS) for one in listed] == [("bob", "laptop", 0)]
        assert made["secret"].rpartition("_")[2] not in str(listed)

    async def again(hal: Running) -> None:
        async with with_secret(hal, secrets[0]) as bob:
            assert (await bob.get("/v1/jobs")).status_code == 200

    on_controller(hal_home, make)
    on_controller(hal_home, again)
    secret = secrets[0].rpartition("_")[2].encode()
    assert not [file for file in hal_home.rglob("*") if file.is_file() and secret in file.read_bytes()]


def test_what_opens_nothing_is_401_and_says_why(hal_home: Path) -> None:
    """No token, a wrong one, one that was revoked, one that has expired; the owner's other tokens go on."""

    async def body(hal: Running) -> None:
        bob, eve = await make_token(hal, "bob"), await make_token(hal, "eve", expires_in="1s")
        async with with_secret(hal, bob["secret"]) as http:
            assert (await http.get("/v1/jobs")).status_code == 200
            revoked = (await hal.http.post(f"/v1/api-tokens/{bob['token']['id']}/revoke")).json()
            assert revoked["state"] == "revoked"
            told = problem(await http.get("/v1/jobs"), 401, "unauthorized")
            assert "was revoked" in told["detail"]
            assert "hal login" in told["hint"]
        for shown, word in (("", "is needed"), ("hal_x_y", "is wrong"), (bob["secret"] + "0", "is wrong")):
            async with with_secret(hal, shown) as http:
                answer = await http.get("/v1/version")
                assert word in problem(answer, 401, "unauthorized")["detail"]
                assert answer.headers["www-authenticate"] == "Bearer"
        await hal.until(lambda: [one.state for one in hal.api.tokens.all() if one.user == "eve"] == ["expired"])
        async with with_secret(hal, eve["secret"]) as http:
            assert "has expired" in problem(await http.get("/v1/jobs"), 401, "unauthorized")["detail"]
        problem(await hal.http.post("/v1/api-tokens/nothing/revoke"), 404, "not-found")

    on_controller(hal_home, body)


def test_a_token_that_makes_no_sense_is_refused(hal_home: Path) -> None:
    """Too long a life, no life, a name that is none, an unknown role or field: nothing is made."""

    async def body(hal: Running) -> None:
        for wrong in (
            {"user": "bob", "expires_in": "366d"},
            {"user": "bob", "expires_in": "0s"},
            {"user": "b b"},
            {"user": "bob", "role": "root"},
            {"user": "bob", "colour": "red"},
            {"user": "bob", "note": "x" * 300},
            {"user": "bob", "queues": [""]},
            {},
        ):
            problem(await hal.http.post("/v1/api-tokens", json=wrong), 400, "invalid-spec")
        assert hal.api.tokens.all() == []

    on_controller(hal_home, body)


def test_revoking_is_durable_before_it_is_answered(hal_home: Path) -> None:
    """The store's row says revoked as soon as the answer is there, also when the token is used at the same time."""

    async def body(hal: Running) -> None:
        made = await make_token(hal, "bob")
        async with with_secret(hal, made["secret"]) as http:
            await http.get("/v1/jobs")
            await hal.http.post(f"/v1/api-tokens/{made['token']['id']}/revoke")
        await hal.http.post("/v1/jobs", json={"command": ["x"]})
        assert [one.state for one in hal.api.tokens.all()] == ["revoked"]

    on_controller(hal_home, body)
    store = Store.open(hal_home / "db" / "hal.sqlite")
    kept = [value for key, value in store.load().meta.items() if key.startswith(META)]
    store.close()
    assert len(kept) == 1
    assert "revoked_ms" in kept[0]


def test_an_operator_makes_no_tokens(hal_home: Path) -> None:
    """Nobody raises themselves: tokens are for admins."""

    async def body(hal: Running) -> None:
        async with person(hal, "olga", role="operator") as olga:
            problem(await olga.post("/v1/api-tokens", json={"user": "olga", "role": "admin"}), 403, "denied")
            assert (await olga.get("/v1/policy/versions")).status_code == 200

    on_controller(hal_home, body)
