"""Who may join and who may speak: tokens once and for a while, certificates until they end or are revoked."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import ConflictError, DeniedError, NotFoundError, OverloadedError, SpecError
from hal.planes.joining import MAX_LIFE_MS, MAX_TOKENS, Membership, TokenState, hash_of, state_of
from hal.store import CertificateRow, PutJoining
from hal.wire.peer import CertifiedName

HOUR_MS = 3_600_000
NOW_MS = 1_767_225_600_000


def with_token(node: str = "", life_ms: int = HOUR_MS) -> Membership:
    """One token, `t1` with the secret `secret`."""
    membership = Membership()
    membership.apply(membership.create("t1", hash_of("secret"), node=node, life_ms=life_ms, user="u", now_ms=NOW_MS))
    return membership


def join(membership: Membership, node: str, serial: str, now_ms: int = NOW_MS) -> PutJoining:
    """The node joins with `t1`; what undoes it."""
    token = membership.check_token("t1", "secret", node, now_ms, known=False)
    return membership.apply(membership.admitted(token, certificate(node, serial), now_ms, lambda name: False))


def certificate(node: str, serial: str, expires_ms: int = NOW_MS + 90 * HOUR_MS) -> CertificateRow:
    return CertificateRow(serial=serial, node=node, issued_ms=NOW_MS, expires_ms=expires_ms)


def shows(serial: str, name: str = "n1", role: str = "agent") -> CertifiedName:
    """What is in the certificate that somebody shows."""
    return CertifiedName(role, name, serial)


def test_a_token_is_good_once() -> None:
    """The second machine is told who used it."""
    membership = with_token()
    join(membership, "n1", "aa")
    assert state_of(membership.tokens()[0], NOW_MS) is TokenState.USED
    with pytest.raises(DeniedError, match="used already, by node 'n1'"):
        membership.check_token("t1", "secret", "n2", NOW_MS, known=False)


def test_a_token_ends_with_its_time() -> None:
    """At the very instant."""
    membership = with_token()
    membership.check_token("t1", "secret", "n1", NOW_MS + HOUR_MS - 1, known=False)
    with pytest.raises(DeniedError, match="is expired"):
        membership.check_token("t1", "secret", "n1", NOW_MS + HOUR_MS, known=False)


@pytest.mark.parametrize(("token_id", "secret"), [("t2", "secret"), ("t1", "Secret"), ("", "")])
def test_a_wrong_id_and_a_wrong_secret_are_told_alike(token_id: str, secret: str) -> None:
    """Nobody learns which tokens there are."""
    with pytest.raises(DeniedError, match="does not know the join token"):
        with_token().check_token(token_id, secret, "n1", NOW_MS, known=False)


def test_a_token_for_any_node_takes_nobodys_name() -> None:
    """Neither that of a known node nor one that has a valid certificate; a token for that node does."""
    membership = with_token()
    with pytest.raises(DeniedError, match="there is a node 'n1' already"):
        membership.check_token("t1", "secret", "n1", NOW_MS, known=True)
    membership.apply(PutJoining((), (certificate("n1", "aa"),)))
    with pytest.raises(DeniedError, match="there is a node 'n1' already"):
        membership.check_token("t1", "secret", "n1", NOW_MS, known=False)
    with_token("n1").check_token("t1", "secret", "n1", NOW_MS, known=False)
    with pytest.raises(DeniedError, match="is for node 'n1', not 'n2'"):
        with_token("n1").check_token("t1", "secret", "n2", NOW_MS, known=False)


def test_no_machine_joins_as_a_node_of_the_controllers_own() -> None:
    """Two nodes under one name would push each other out; one that has joined before may, also when it was revoked."""
    membership = with_token("n1")
    with pytest.raises(ConflictError, match="node 'n1' has not joined: it belongs to a controller's own machine"):
        membership.check_token("t1", "secret", "n1", NOW_MS, known=True)
    membership.apply(PutJoining((), (certificate("n1", "aa"),)))
    membership.apply(membership.revoke("n1", NOW_MS))
    membership.check_token("t1", "secret", "n1", NOW_MS, known=True)


def test_joining_again_ends_what_was_issued_before() -> None:
    """A machine that was installed anew takes its name back; whoever has the old key is out."""
    membership = with_token("n1")
    membership.apply(PutJoining((), (certificate("n1", "aa"),)))
    join(membership, "n1", "bb")
    membership.check_certificate(shows("bb"), "n1", NOW_MS)
    with pytest.raises(DeniedError, match="was revoked"):
        membership.check_certificate(shows("aa"), "n1", NOW_MS)


def test_a_certificate_speaks_for_its_own_node_only() -> None:
    """Another name, an unknown serial number, a time that is over."""
    membership = with_token()
    join(membership, "n1", "aa")
    membership.check_certificate(shows("aa"), "n1", NOW_MS)
    with pytest.raises(DeniedError, match="is not valid for node 'n2'"):
        membership.check_certificate(shows("aa"), "n2", NOW_MS)
    with pytest.raises(DeniedError, match="was not issued"):
        membership.check_certificate(shows("bb"), "n1", NOW_MS)
    with pytest.raises(DeniedError, match="has expired"):
        membership.check_certificate(shows("aa"), "n1", NOW_MS + 90 * HOUR_MS)


def test_a_renewed_certificate_leaves_the_former_valid_and_forgets_expired_ones() -> None:
    """The agent may die between getting and keeping it."""
    membership = with_token()
    membership.apply(PutJoining((), (certificate("n1", "old", NOW_MS), certificate("n1", "aa"))))
    change = membership.renewed(certificate("n1", "bb"), "aa", NOW_MS)
    assert change.forget_certificates == ("old",)
    membership.apply(change)
    for serial in ("aa", "bb"):
        membership.check_certificate(shows(serial), "n1", NOW_MS)


def test_revoking_a_node_ends_all_its_certificates() -> None:
    """And no other's."""
    membership = Membership()
    membership.load(PutJoining((), (certificate("n1", "aa"), certificate("n1", "bb"), certificate("n2", "cc"))))
    membership.apply(membership.revoke("n1", NOW_MS))
    assert not membership.has_certificate("n1", NOW_MS)
    assert membership.has_certificate("n2", NOW_MS)
    assert membership.revoke("n1", NOW_MS) == PutJoining()


def test_revoking_a_token() -> None:
    """Once; not one that was used, nor one that is not there."""
    membership = with_token()
    membership.apply(membership.revoke_token("t1", NOW_MS))
    with pytest.raises(DeniedError, match="is revoked"):
        membership.check_token("t1", "secret", "n1", NOW_MS, known=False)
    with pytest.raises(ConflictError, match="revoked already"):
        membership.revoke_token("t1", NOW_MS)
    with pytest.raises(NotFoundError):
        membership.revoke_token("t2", NOW_MS)
    used = with_token()
    join(used, "n1", "aa")
    with pytest.raises(ConflictError, match="node 'n1' joined"):
        used.revoke_token("t1", NOW_MS)


def test_a_commit_that_failed_is_undone() -> None:
    """The token may be used again, the certificate never was."""
    membership = with_token()
    undo = join(membership, "n1", "aa")
    membership.apply(undo)
    assert state_of(membership.tokens()[0], NOW_MS) is TokenState.OPEN
    with pytest.raises(DeniedError, match="was not issued"):
        membership.check_certificate(shows("aa"), "n1", NOW_MS)
    join(membership, "n1", "bb")


def test_tokens_are_bounded() -> None:
    """No more wait than the bound, ended ones are forgotten after a day, and none lives longer than a week."""
    membership = Membership()
    for number in range(MAX_TOKENS):
        made = membership.create(f"{number}", "", node="", life_ms=HOUR_MS, user="u", now_ms=NOW_MS)
        membership.apply(made)
    with pytest.raises(OverloadedError):
        membership.create("more", "", node="", life_ms=HOUR_MS, user="u", now_ms=NOW_MS)
    later_ms = NOW_MS + 26 * HOUR_MS
    membership.apply(membership.create("later", "", node="", life_ms=HOUR_MS, user="u", now_ms=later_ms))
    assert [token.id for token in membership.tokens()] == ["later"]
    for life_ms in (0, MAX_LIFE_MS + 1):
        with pytest.raises(SpecError, match="expires_in"):
            membership.create("x", "", node="", life_ms=life_ms, user="u", now_ms=later_ms)


def for_many(uses: int, labels: dict[str, str] | None = None) -> Membership:
    """A token `t1` for so many machines."""
    membership = Membership()
    change = membership.create(
        "t1", hash_of("secret"), node="", life_ms=HOUR_MS, user="u", now_ms=NOW_MS, uses=uses, labels=labels
    )
    membership.apply(change)
    return membership


def test_a_token_for_several_machines_is_counted_and_used_up() -> None:
    """Two join, the third is told by how many it was used."""
    membership = for_many(2)
    states = []
    for node, serial in (("n1", "aa"), ("n2", "bb")):
        join(membership, node, serial)
        (token,) = membership.tokens()
        states.append((token.used, state_of(token, NOW_MS)))
    assert states == [(1, TokenState.OPEN), (2, TokenState.USED)]
    with pytest.raises(DeniedError, match="was used already, by 2 nodes"):
        membership.check_token("t1", "secret", "n3", NOW_MS, known=False)


def test_a_token_for_any_number_is_open_until_it_expires() -> None:
    """However many have joined; revoked, it is open no more."""
    membership = for_many(0)
    for number in range(5):
        join(membership, f"n{number}", f"{number}")
    (token,) = membership.tokens()
    assert (token.used, state_of(token, NOW_MS), state_of(token, NOW_MS + HOUR_MS)) == (
        5,
        TokenState.OPEN,
        TokenState.EXPIRED,
    )
    membership.apply(membership.revoke_token("t1", NOW_MS))
    with pytest.raises(DeniedError, match="is revoked"):
        membership.check_token("t1", "secret", "n9", NOW_MS, known=False)


def test_the_labels_of_a_token_stay_with_the_node_when_its_certificate_is_renewed() -> None:
    """They are those of the certificate that it shows."""
    membership = for_many(0, {"pool": "spot"})
    join(membership, "n1", "aa")
    membership.apply(membership.renewed(certificate("n1", "bb"), "aa", NOW_MS))
    assert [membership.labels_of(serial) for serial in ("aa", "bb", "cc")] == [{"pool": "spot"}, {"pool": "spot"}, {}]


@pytest.mark.parametrize(
    ("uses", "node", "labels", "words"),
    [
        (-1, "", {}, "uses: -1 is out of range"),
        (10_001, "", {}, "uses: 10001 is out of range"),
        (2, "n1", {}, "a token for one name is used once"),
        (1, "", {"hal.node": "n1"}, "labels that begin with 'hal.' are HAL's own"),
    ],
)
def test_a_token_out_of_bounds_is_not_made(uses: int, node: str, labels: dict[str, str], words: str) -> None:
    """One error names the field."""
    with pytest.raises(SpecError, match=words):
        Membership().create(
            "t1", hash_of("s"), node=node, life_ms=HOUR_MS, user="u", now_ms=NOW_MS, uses=uses, labels=labels
        )


def test_certificates_of_machines_that_are_gone_are_forgotten() -> None:
    """A day after they were of use, when another machine joins; not those of nodes that are still known."""
    membership = for_many(0)
    for node, serial in (("gone", "aa"), ("known", "bb")):
        join(membership, node, serial)
        membership.apply(membership.revoke(node, NOW_MS))
    membership.apply(membership.create("t2", hash_of("s"), node="", life_ms=HOUR_MS, user="u", now_ms=NOW_MS))
    later_ms = NOW_MS + 25 * HOUR_MS
    (token, _) = membership.tokens()
    change = membership.admitted(token, certificate("new", "cc"), later_ms, lambda name: name == "known")
    assert change.forget_certificates == ("aa",)


# ── other roles ───────────────────────────────────────────────────────────────────────────────────────────────────


def with_role(role: str, name: str = "") -> Membership:
    """One token for that role, `t1` with the secret `secret`."""
    membership = Membership()
    made = membership.create(
        "t1", hash_of("secret"), node=name, life_ms=HOUR_MS, user="u", now_ms=NOW_MS, uses=1 if name else 0, role=role
    )
    membership.apply(made)
    return membership


@pytest.mark.parametrize("asked", ["agent", "broker", "client", "controller"])
def test_a_token_for_one_role_gives_no_other(asked: str) -> None:
    """Nor a node; with its own role it does."""
    membership = with_role("worker")
    with pytest.raises(DeniedError, match=f"is for the role worker, not {asked}"):
        membership.check_token("t1", "secret", "w1", NOW_MS, known=False, role=asked)
    assert membership.check_token("t1", "secret", "w1", NOW_MS, known=False, role="worker").role == "worker"


def test_a_name_in_one_role_is_no_other_role_of_that_name() -> None:
    """Node n1 and worker n1 have certificates: neither stands for the other, and revoking one leaves the other."""
    membership = with_role("worker")
    token = membership.tokens()[0]
    membership.apply(membership.admitted(token, certificate("n1", "aa"), NOW_MS, lambda name: False))
    join_as_node(membership)
    membership.check_certificate(shows("aa", role="worker"), "n1", NOW_MS, "worker")
    for wrong in (shows("aa"), shows("aa", role="worker"), shows("bb", role="worker")):
        with pytest.raises(DeniedError):
            membership.check_certificate(wrong, "n1", NOW_MS)
    membership.apply(membership.revoke("n1", NOW_MS))
    membership.check_certificate(shows("aa", role="worker"), "n1", NOW_MS, "worker")
    with pytest.raises(DeniedError, match="there is a worker 'n1' already"):
        membership.check_token("t1", "secret", "n1", NOW_MS, known=False, role="worker")


def join_as_node(membership: Membership) -> None:
    """Node n1 joins; its certificate has the serial number bb."""
    made = membership.create("t2", hash_of("other"), node="", life_ms=HOUR_MS, user="u", now_ms=NOW_MS)
    membership.apply(made)
    token = membership.check_token("t2", "other", "n1", NOW_MS, known=False)
    membership.apply(membership.admitted(token, certificate("n1", "bb"), NOW_MS, lambda name: False))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"role": "controller"}, "'controller' gets no certificate"),
        ({"role": "keeper"}, "'keeper' gets no certificate"),
        ({"role": "client"}, "the token must name them"),
        ({"role": "service", "labels": {"a": "b"}}, "only nodes have labels"),
        ({"role": "service", "node": "x", "uses": 2}, "a token for one name is used once"),
    ],
)
def test_a_token_that_makes_no_sense_for_its_role_is_refused(fields: dict[str, Any], match: str) -> None:
    """Nothing is made."""
    with pytest.raises(SpecError, match=match):
        Membership().create("t1", "h", **{"node": "", "life_ms": HOUR_MS, "user": "u", "now_ms": NOW_MS, **fields})
