"""The hash chain of the audit log: it goes on over files, restarts, removals; whatever is changed is named."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.core.model.audit_chain import CHAIN, Head, read_head, read_link
from hal.core.model.audit_verification import Row, Verdict, What, verify_log
from hal.rest.audit import AuditLog
from hal.runtime.audit_directory import lines_backwards, listed, path_of, rows_of

USERS = ("ada", "bob", "", "çelik")


def write(log: AuditLog, user: str = "ada", at_ms: int = 0, status: int = 201) -> None:
    """One entry."""
    log.write(
        at_ms=at_ms, user=user, role="user", peer="p", token="", method="POST", path="/v1/jobs", status=status
    )  # fmt: skip


def written(root: Path, count: int, *, max_bytes: int = 1 << 26, users: tuple[str, ...] = USERS) -> Head:
    """So many entries, in a log that is closed; its head."""
    log = AuditLog(root / "audit.log", max_bytes=max_bytes)
    for number in range(count):
        write(log, users[number % len(users)], at_ms=1_000 + number)
    log.close()
    return log.head


def verdict(root: Path, *heads: str) -> Verdict:
    """What `hal audit verify` finds."""
    directory = root / "audit"
    files = {
        source: [str(path_of(directory, source, first)) for first in firsts]
        for source, firsts in listed(directory).items()
    }
    newest = 0
    for source, paths in files.items():
        if source != CHAIN and (link := read_link(next(lines_backwards(Path(paths[-1])), b""))):
            newest = max(newest, link.sequence)
    return verify_log(files, lambda file: rows_of(Path(file)), newest, [read_head(head) for head in heads])


def files_of(root: Path, source: str) -> list[Path]:
    """Of a series, oldest first."""
    return [path_of(root / "audit", source, first) for first in listed(root / "audit")[source]]


def edit(file: Path, change: Callable[[list[bytes]], None]) -> None:
    """Change the lines of a file."""
    lines = file.read_bytes().splitlines(keepends=True)
    change(lines)
    file.write_bytes(b"".join(lines))


def test_a_log_that_nobody_touched_is_intact_up_to_its_last_line(tmp_path: Path) -> None:
    """Of four series, over a restart; the head of the first run is found."""
    first = written(tmp_path, 40)
    second = written(tmp_path, 40)
    found = verdict(tmp_path, first.text, second.text)
    assert found.findings == ()
    assert (found.intact, found.lines, found.intact_sequence, found.intact_ms) == (True, 80, 80, 1_039)
    assert found.heads_found == (first.text, second.text)


def test_each_line_carries_the_hash_that_sha256sum_gives_for_the_line_before(tmp_path: Path) -> None:
    """The standard one, over the bytes as they are in the file."""
    import hashlib

    written(tmp_path, 3, users=("ada",))
    (file,) = files_of(tmp_path, "user-ada")
    lines = file.read_bytes().splitlines()
    assert f'"previous":"{hashlib.sha256(lines[0]).hexdigest()}"'.encode() in lines[1]


@pytest.mark.parametrize("place", [0, 4, 9])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda at: lambda lines: lines.__setitem__(at, lines[at].replace(b"/v1/jobs", b"/v1/node")), What.CHANGED),
        (lambda at: lambda lines: lines.__delitem__(at), What.REMOVED),
        (lambda at: lambda lines: lines.insert(at, lines[at]), What.INSERTED),
        (lambda at: lambda lines: lines.insert(at + 1, lines[at].replace(b"jobs", b"node")), What.INSERTED),
    ],
    ids=["changed", "removed", "repeated", "inserted"],
)
def test_the_first_line_that_was_changed_is_named(
    tmp_path: Path, place: int, change: Callable[[int], Callable[[list[bytes]], None]], what: What
) -> None:
    """The first, one in the middle and the last of ten: kind and place."""
    written(tmp_path, 20, users=("ada", "bob"))
    (file,) = files_of(tmp_path, "user-bob")
    edit(file, change(place))
    found = verdict(tmp_path)
    first = found.findings[0]
    assert not found.intact
    assert (first.what, first.file) == (what, file.name) or (what, place) == (What.REMOVED, 9)
    assert abs(first.row - 1 - place) <= 1
    assert first.intact_sequence in (2 * place, 2 * place + 2)  # of bob's entries, those before it


def test_a_line_that_was_removed_is_named_by_its_number_and_all_before_it_are_intact(tmp_path: Path) -> None:
    """Line 5 of bob, which was entry 10 of the log."""
    written(tmp_path, 20, users=("ada", "bob"))
    (file,) = files_of(tmp_path, "user-bob")
    edit(file, lambda lines: lines.__delitem__(4))
    (finding,) = verdict(tmp_path).findings
    assert (finding.text, finding.row, finding.intact_sequence) == ("user-bob: line 5", 5, 8)


def test_a_tail_that_was_written_anew_with_right_hashes_is_found_by_its_checkpoint(tmp_path: Path) -> None:
    """Whoever forges the lines of one series from some line on must forge the chain, too; and whoever does that, the
    head that was kept elsewhere."""
    head = written(tmp_path, 20)
    forged = tmp_path / "forged"
    forged.mkdir()
    log = AuditLog(forged / "audit.log")
    for number in range(20):
        write(log, "mallory" if number == 7 else USERS[number % 4], at_ms=1_000 + number)
    log.close()
    assert verdict(forged).intact
    assert [one.what for one in verdict(forged, head.text).findings] == [What.HEAD]
    (target,), (source,) = files_of(tmp_path, "user-ada"), files_of(forged, "user-ada")
    edit(source, lambda lines: lines.pop())
    target.write_bytes(source.read_bytes())
    assert verdict(tmp_path).findings[0].what is What.REMOVED


@pytest.mark.parametrize("victim", ["user-ada", "strangers", CHAIN])
def test_a_series_that_was_removed_as_a_whole_is_missed(tmp_path: Path, victim: str) -> None:
    """A user's, the strangers'; without the checkpoints the head that was kept elsewhere is not there."""
    head = written(tmp_path, 20)
    for file in files_of(tmp_path, victim):
        file.unlink()
    found = verdict(tmp_path, head.text)
    assert not found.intact
    assert found.findings[0].what in (What.REMOVED, What.HEAD)


def test_a_log_that_was_cut_off_behind_a_checkpoint_is_missed_by_the_head(tmp_path: Path) -> None:
    """The state of the whole directory of an hour ago in its place: only somebody who knows the head can tell."""
    written(tmp_path, 20)
    before = {file: file.read_bytes() for file in (tmp_path / "audit").iterdir()}
    head = written(tmp_path, 20)
    for file in (tmp_path / "audit").iterdir():
        file.write_bytes(before.get(file, b""))
    assert verdict(tmp_path).intact
    (finding,) = verdict(tmp_path, head.text).findings
    assert (finding.what, finding.text) == (What.HEAD, f"the log ends with checkpoint 1, before the head {head.text}")


def test_an_entry_behind_the_last_checkpoint_is_missed_by_its_number(tmp_path: Path) -> None:
    """HAL was killed before the next checkpoint: of three entries the middle one is removed."""
    written(tmp_path, 4)
    log = AuditLog(tmp_path / "audit.log")
    for user in ("ada", "bob", "ada"):
        write(log, user)
    (file,) = files_of(tmp_path, "user-bob")
    edit(file, lambda lines: lines.__delitem__(-1))
    assert [one.text for one in verdict(tmp_path).findings] == ["entry 6"]
    log.close()


def test_safety_what_goes_for_room_leaves_the_chain_intact(tmp_path: Path) -> None:
    """1,200 entries where there is room for some hundreds, over restarts: intact, and the newest head is found."""
    for _ in range(3):
        head = written(tmp_path, 400, max_bytes=60_000)
    found = verdict(tmp_path, head.text)
    assert found.findings == ()
    assert 40 < found.lines < 500
    assert sum(file.stat().st_size for file in (tmp_path / "audit").iterdir()) <= 60_000


def test_a_file_that_somebody_removes_is_no_retention(tmp_path: Path) -> None:
    """The oldest that is left of a series of which HAL removed some itself."""
    written(tmp_path, 1_000, max_bytes=100_000)
    files = files_of(tmp_path, "user-ada")
    first = read_link(next(iter(rows_of(files[0]))).raw)
    assert first is not None
    assert first.line > 1
    files[0].unlink()
    finding = verdict(tmp_path).findings[0]
    assert finding.what is What.REMOVED
    assert finding.text.startswith(f"user-ada: lines {first.line} to ")


def test_a_removal_that_was_announced_and_did_not_happen_is_no_finding(tmp_path: Path) -> None:
    """HAL was killed between saying so and removing the file."""
    log = AuditLog(tmp_path / "audit.log", max_bytes=60_000)
    seen: dict[Path, bytes] = {}
    gone: list[Path] = []
    while not gone:
        seen |= {file: file.read_bytes() for file in files_of(tmp_path, "user-ada")} if log.page(limit=1) else {}
        write(log)
        gone = [file for file in seen if not file.exists()]
    for file in gone:
        file.write_bytes(seen[file])
    log.close()
    assert verdict(tmp_path).findings == ()


def test_entries_of_an_earlier_version_are_bound_by_the_first_link_and_said_to_be_in_no_chain(tmp_path: Path) -> None:
    """Three lines without a link, then two with: from where the chain begins is said; the last old one is protected."""
    (tmp_path / "audit").mkdir()
    old = tmp_path / "audit/user-ada.00000000000000000001.log"
    old.write_text(
        "".join(
            f'{{"sequence":{n},"at_ms":{n},"user":"ada","role":"user","method":"POST","path":"/","status":200}}\n'
            for n in (1, 2, 3)
        )
    )
    log = AuditLog(tmp_path / "audit.log")
    write(log, at_ms=50)
    write(log, at_ms=51)
    log.close()
    found = verdict(tmp_path)
    assert (found.intact, found.unchained, found.lines, found.chained_from_ms) == (True, 3, 2, 50)
    edit(old, lambda lines: lines.__setitem__(2, lines[2].replace(b"POST", b"PUTT")))
    assert [one.what for one in verdict(tmp_path).findings] == [What.CHANGED]


def test_a_log_without_a_chain_is_not_called_intact(tmp_path: Path) -> None:
    """Links taken off all lines, and no checkpoints: as of an earlier version, and nobody can say."""
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/user-ada.00000000000000000001.log").write_text(
        '{"sequence":1,"at_ms":1,"user":"ada","method":"POST","path":"/","status":200}\n'
    )
    found = verdict(tmp_path)
    assert (found.intact, found.unchained, found.chained_from_ms, found.findings) == (False, 1, None, ())


def test_a_line_without_a_link_behind_others_was_inserted(tmp_path: Path) -> None:
    """It looks like one of an earlier version."""
    written(tmp_path, 8)
    (file,) = files_of(tmp_path, "user-ada")
    with file.open("ab") as opened:
        opened.write(b'{"sequence":9,"at_ms":9,"user":"ada","method":"POST","path":"/","status":200}\n')
    assert [one.what for one in verdict(tmp_path).findings] == [What.INSERTED]


def test_a_torn_line_costs_no_other_and_is_no_finding(tmp_path: Path) -> None:
    """A power failure leaves half a line at the end of a file: the next entry is on a line of its own."""
    written(tmp_path, 4, users=("ada",))
    (file,) = files_of(tmp_path, "user-ada")
    with file.open("ab") as opened:
        opened.write(b'{"sequence":5,"at_')
    written(tmp_path, 2, users=("ada",))
    found = verdict(tmp_path)
    assert (found.intact, found.lines, found.fragments) == (True, 6, 1)


def test_a_log_that_was_killed_goes_on_where_its_files_end(tmp_path: Path) -> None:
    """Ten times in the midst of writing, without a last checkpoint."""
    for _ in range(10):
        log = AuditLog(tmp_path / "audit.log", max_bytes=200_000)
        for number in range(60):
            write(log, USERS[number % 4])
    head = written(tmp_path, 4)
    found = verdict(tmp_path, head.text)
    assert (found.findings, found.last_sequence) == ((), 604)


def test_what_is_written_while_the_log_is_verified_is_not_missed(tmp_path: Path) -> None:
    """Before each file is read, each user writes; what was there at the beginning is verified."""
    log = AuditLog(tmp_path / "audit.log")
    for number in range(40):
        write(log, USERS[number % 4])
    paths = {
        source: [str(path_of(tmp_path / "audit", source, first)) for first in firsts]
        for source, firsts in listed(tmp_path / "audit").items()
    }

    def rows(file: str) -> Iterator[Row]:
        for user in USERS:
            write(log, user)
        yield from rows_of(Path(file))

    assert verify_log(paths, rows, 40).findings == ()
    log.close()


def test_lines_lost_behind_a_checkpoint_stay_a_finding_after_a_restart(tmp_path: Path) -> None:
    """HAL goes on behind what the checkpoint says, so that no restart covers what was cut off."""
    written(tmp_path, 6, users=("ada",))
    (file,) = files_of(tmp_path, "user-ada")
    edit(file, lambda lines: lines.__delitem__(slice(4, 6)))
    written(tmp_path, 3, users=("ada",))
    assert [one.text for one in verdict(tmp_path).findings] == ["user-ada: lines 5 to 6"]


def test_a_last_line_that_was_changed_stays_a_finding_after_a_restart(tmp_path: Path) -> None:
    """The next line links to what the checkpoint says, not to what is in the file."""
    written(tmp_path, 6, users=("ada",))
    (file,) = files_of(tmp_path, "user-ada")
    edit(file, lambda lines: lines.__setitem__(5, lines[5].replace(b"jobs", b"node")))
    written(tmp_path, 3, users=("ada",))
    assert [one.text for one in verdict(tmp_path).findings] == ["user-ada: line 6"]


def test_a_full_disk_costs_entries_that_the_next_one_counts_and_the_chain_holds(tmp_path: Path) -> None:
    """Files of at most 4 KiB: entries that do not fit are lost, and told of by the first that fits again."""
    import resource
    import signal

    log = AuditLog(tmp_path / "audit.log")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
    try:
        for _ in range(40):
            write(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    write(log)
    log.close()
    newest = log.page(limit=1)[0]
    found = verdict(tmp_path)
    assert (found.intact, newest.lost + newest.sequence) == (True, 41)
    assert newest.lost > 10


@pytest.mark.slow
def test_many_series_are_listed_in_several_checkpoints(tmp_path: Path) -> None:
    """Users beyond what one checkpoint names; each file of the chain begins with all of them."""
    users = tuple(f"u{number}" for number in range(450))
    for _ in range(3):
        written(tmp_path, 450, users=users)
    found = verdict(tmp_path)
    assert (found.findings, found.lines) == ((), 1_350)
    files_of(tmp_path, "user-u7")[0].unlink()
    assert verdict(tmp_path).findings[0].text == "all lines of user-u7 up to 3"


@pytest.mark.parametrize("text", ["", "1", "0:" + "0" * 64, "1:" + "g" * 64, "1:" + "0" * 63, "-1:" + "0" * 64])
def test_what_is_no_head_is_refused(text: str) -> None:
    """In one line, with what a head looks like."""
    with pytest.raises(SpecError, match="is not a head"):
        read_head(text)


def mutations(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """A file of lines with one of them changed, removed, repeated, swapped, or the end cut off."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    position = rng.randrange(len(lines[at]) - 1)
    flipped = bytes([lines[at][position] ^ 1])
    yield b"".join([*lines[:at], lines[at][:position] + flipped + lines[at][position + 1 :], *lines[at + 1 :]])
    yield b"".join(lines[:at] + lines[at + 1 :])
    yield b"".join([*lines[: at + 1], *lines[at:]])
    if at:
        yield b"".join([*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]])
    yield b"".join(lines[:at])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30))
def test_safety_no_single_change_goes_unnoticed(seed: int) -> None:
    """A bit of any line of any file, a line removed, repeated, swapped with the next, an end cut off: a finding."""
    import tempfile

    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for _ in range(3):
            head = written(root, rng.randrange(5, 40), max_bytes=1 << 20, users=USERS[: rng.randrange(1, 5)])
        files = sorted((root / "audit").iterdir())
        file = rng.choice(files)
        intact = file.read_bytes()
        for changed in mutations(intact, rng):
            if changed.splitlines() == intact.splitlines():
                continue
            file.write_bytes(changed)
            assert not verdict(root, head.text).intact, changed
        file.write_bytes(intact)
        assert verdict(root, head.text).intact
