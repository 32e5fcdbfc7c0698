"""Secrets as they are stored: what opens under which name, which key, and for whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.core.model import DeniedError, NotFoundError
from hal.core.model.policy import Account
from hal.daemons.controller.access.secret_keys import KeyRing, SealError, read_keys, write_keys
from hal.daemons.controller.access.secrets import META, OwnerKind, SecretBook, SecretId, row_key, row_of, usable

OPEN = {"physics": Account(name="physics", users={"bob": 1.0})}
CLOSED = {"physics": Account(name="physics", users={"bob": 1.0}, closed=True)}
BOBS = SecretId(OwnerKind.USER, "bob", "db")
OF_PHYSICS = SecretId(OwnerKind.ACCOUNT, "physics", "db")


def new_id() -> str:
    """As a runtime's."""
    return os.urandom(16).hex()


def book_with(*which: SecretId) -> SecretBook:
    """A book with a key, and these; each value is its owner's name."""
    book = SecretBook()
    book.ring = KeyRing().with_new_key(new_id)
    for one in which:
        book.put(book.sealed(one, one.owner.encode(), version=1, now_ms=1, by="ada", new_id=new_id))
    return book


def test_a_value_opens_as_it_was_set() -> None:
    book = book_with(BOBS)
    assert book.value(book.find("db", user="bob", account="", accounts={})) == b"bob"


@pytest.mark.parametrize("changed", [{"owner": "eve"}, {"name": "other"}, {"version": 2}, {"kind": OwnerKind.ACCOUNT}])
def test_a_row_under_another_name_owner_or_version_does_not_open(changed: dict[str, object]) -> None:
    """Whoever writes to the database cannot give bob's secret to eve, nor an older one to bob."""
    book = book_with(BOBS)
    moved = replace(book.all()[0], **changed)
    with pytest.raises(SealError, match="not what was set"):
        book.value(moved)


def test_what_is_stored_of_a_secret_contains_neither_its_value_nor_its_length_in_clear() -> None:
    book = book_with(BOBS)
    assert b"bob" not in book.all()[0].sealed


def test_a_ring_prints_no_key() -> None:
    ring = KeyRing().with_new_key(new_id)
    assert not any(repr(key)[2:-1] in repr(ring) for key in ring.keys.values())


def test_a_missing_key_is_named() -> None:
    book = book_with(BOBS)
    gone, book.ring = book.ring.current, KeyRing().with_new_key(new_id)
    with pytest.raises(SealError, match=gone):
        book.value(book.all()[0])


def test_the_rows_of_a_book_load_as_the_same_book() -> None:
    book, again = book_with(BOBS, OF_PHYSICS), SecretBook()
    again.load({key: text for one in book.all() for key, text in row_of(one).items()} | {"other": "fact"})
    assert again.all() == book.all()


def test_rows_of_owners_with_slashes_do_not_collide() -> None:
    """Names of users may contain slashes, those of secrets may not."""
    assert row_key(SecretId(OwnerKind.USER, "a/b", "c")) != row_key(SecretId(OwnerKind.USER, "a", "b-c"))
    assert row_key(BOBS).startswith(META)


# ── who may use which ─────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_uses_the_secret_of_another_user() -> None:
    with pytest.raises(NotFoundError, match="'eve' has no secret 'db'"):
        book_with(BOBS).find("db", user="eve", account="physics", accounts=OPEN)


def test_a_users_own_secret_comes_before_the_accounts() -> None:
    found = book_with(BOBS, OF_PHYSICS).find("db", user="bob", account="physics", accounts=CLOSED)
    assert found.id == BOBS


def test_the_users_of_a_closed_account_use_its_secrets() -> None:
    assert book_with(OF_PHYSICS).find("db", user="bob", account="physics", accounts=CLOSED).id == OF_PHYSICS


@pytest.mark.parametrize(
    ("user", "account", "accounts"),
    [("bob", "physics", OPEN), ("eve", "physics", CLOSED), ("bob", "", CLOSED), ("bob", "other", CLOSED)],
    ids=["it was opened", "not named by it", "no account", "another account"],
)
def test_nobody_else_uses_the_secret_of_an_account(user: str, account: str, accounts: dict[str, Account]) -> None:
    with pytest.raises(NotFoundError):
        book_with(OF_PHYSICS).find("db", user=user, account=account, accounts=accounts)


def test_a_user_is_shown_what_their_jobs_may_use_and_nothing_else() -> None:
    all_of_them = book_with(BOBS, OF_PHYSICS).all()
    assert [one.id for one in usable(all_of_them, "bob", CLOSED)] == [OF_PHYSICS, BOBS]
    assert usable(all_of_them, "eve", CLOSED) == []


# ── the file of keys ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_file_of_keys_is_private_and_reads_as_it_was_written(tmp_path: Path) -> None:
    ring = KeyRing().with_new_key(new_id).with_new_key(new_id)
    write_keys(tmp_path / "secrets.key", ring)
    assert read_keys(tmp_path / "secrets.key") == ring
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


def test_a_file_of_keys_that_others_may_read_is_refused(tmp_path: Path) -> None:
    write_keys(tmp_path / "secrets.key", KeyRing().with_new_key(new_id))
    (tmp_path / "secrets.key").chmod(0o644)
    with pytest.raises(DeniedError, match="not private"):
        read_keys(tmp_path / "secrets.key")


@pytest.mark.parametrize("text", ["", "{}", '{"current":"a","keys":{}}', '{"current":"a","keys":{"a":"c2hvcnQ="}}'])
def test_a_damaged_file_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets.key").write_text(text)
    (tmp_path / "secrets.key").chmod(0o600)
    with pytest.raises(DeniedError, match="not a file of keys"):
        read_keys(tmp_path / "secrets.key")
