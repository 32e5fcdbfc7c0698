"""Bundles: what a manifest may say, and nothing else."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.model import JobSpec, SpecError, check_spec
from hal.core.model.bundle import (
    MAX_PATTERNS,
    SEGMENT_BYTES,
    BundleLimits,
    Entry,
    EntryKind,
    Manifest,
    Segment,
    check_entries,
    check_patterns,
    check_relative,
    encode_manifest,
    is_bundle_name,
    name_of,
    parse_manifest,
)
from tests.examples import examples

DIGEST = "5e" * 32
FILE = Entry("a", EntryKind.FILE, 3)
GOOD = Manifest(entries=(FILE, Entry("b/c", EntryKind.LINK, 0, "../a")), segments=(Segment(DIGEST, 3),))


def parsed(*entries: Entry, segments: tuple[Segment, ...] = ()) -> Manifest:
    return parse_manifest(encode_manifest(Manifest(entries=entries, segments=segments)))


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parse_manifest(encode_manifest(GOOD)) == GOOD


def test_a_bundle_is_named_by_its_manifest() -> None:
    data = encode_manifest(GOOD)
    assert name_of(data) == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert is_bundle_name(name_of(data))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a//b",
        "./a",
        "a/.",
        "",
        "a/",
        "a\0b",
        "x" * 256,
        "/".join("d" * 65),
    ],
)
def test_a_path_that_leads_out_or_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(SpecError):
        parsed(Entry(path, EntryKind.DIRECTORY))


@pytest.mark.parametrize("kind", [EntryKind.FILE, EntryKind.LINK])
def test_nothing_is_below_a_file_or_a_link(kind: EntryKind) -> None:
    """Else a file would be written through the link."""
    above = Entry("a", kind, 0, "/etc" if kind is EntryKind.LINK else "")
    with pytest.raises(SpecError, match="below something that is no directory"):
        parsed(above, Entry("a/b/c", EntryKind.DIRECTORY))


def allowed(paths: list[str], leaves: set[str]) -> bool:
    """The definition: each path alone may be one, and nothing is below a leaf."""
    for path in paths:
        try:
            check_relative(path)
        except SpecError:
            return False
    above = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    return not above & leaves


NAMES = st.sampled_from(["a", "b", "é", "", ".", "..", "a\0", "x" * 255, "x" * 256])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=6)


@settings(max_examples=examples(400))
@given(PATHS, st.data())
def test_paths_that_share_directories_are_checked_as_each_alone(drawn: list[str], data: st.DataObject) -> None:
    paths = sorted(set(drawn))
    leaves = {path for path in paths if data.draw(st.booleans())}
    entries = [Entry(path, EntryKind.FILE if path in leaves else EntryKind.DIRECTORY) for path in paths]
    try:
        check_entries(entries)
        accepted = True
    except SpecError:
        accepted = False
    assert accepted == allowed(paths, leaves)


def test_no_path_is_named_twice() -> None:
    with pytest.raises(SpecError, match="ascend"):
        parsed(Entry("a", EntryKind.DIRECTORY), Entry("a", EntryKind.LINK, 0, "/etc"))


@pytest.mark.parametrize(
    "entry",
    [
        Entry("a", EntryKind.FILE, -1),
        Entry("a", EntryKind.DIRECTORY, 5),
        Entry("a", EntryKind.LINK, 0, ""),
        Entry("a", EntryKind.LINK, 0, "b\0c"),
        Entry("a", EntryKind.FILE, 0, "/etc"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(entry: Entry) -> None:
    with pytest.raises(SpecError):
        parsed(entry)


@pytest.mark.parametrize(
    "segments",
    [(), (Segment(DIGEST, 4),), (Segment(DIGEST, 3), Segment(DIGEST, 0)), (Segment("xyz", 3),), (Segment(DIGEST, -3),)],
)
def test_segments_are_what_the_files_have(segments: tuple[Segment, ...]) -> None:
    with pytest.raises(SpecError):
        parsed(FILE, segments=segments)


def test_a_segment_has_a_longest_length() -> None:
    size = SEGMENT_BYTES + 1
    with pytest.raises(SpecError, match="no segment"):
        parsed(Entry("a", EntryKind.FILE, size), segments=(Segment(DIGEST, size),))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"entries":7}', b'{"entries":[["a","device"]]}', b'{"version":2,"entries":[]}']
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(SpecError):
        parse_manifest(data)


def test_a_directory_that_is_too_large_is_refused_with_a_word_about_what_to_do() -> None:
    refusal = BundleLimits(size_bytes=10 << 20, files=5).refusal(20 << 20, 3)
    assert refusal is not None
    assert "20 MiB; at most 10 MiB are shipped" in refusal.message
    assert ".halignore" in refusal.hint


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../b", "", "a//b", "a\nb", "x" * 300])
def test_a_pattern_stays_below_the_jobs_directory(pattern: str) -> None:
    with pytest.raises(SpecError, match="collect"):
        check_patterns([pattern])


def test_patterns_are_bounded_in_number() -> None:
    with pytest.raises(SpecError, match=f"at most {MAX_PATTERNS}"):
        check_patterns(str(number) for number in range(MAX_PATTERNS + 1))


@pytest.mark.parametrize("fields", [{"ship": "x"}, {"collect": ("x",)}])
def test_a_job_with_files_has_no_other_working_directory(fields: dict[str, object]) -> None:
    spec = JobSpec(command=("true",), workdir="/tmp")
    with pytest.raises(SpecError, match="a directory of its own"):
        check_spec(replace(spec, **fields))
