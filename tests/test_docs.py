"""What the documents say is there: links, make targets, hal commands, dependencies, decision records."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest

import hal
from hal.cli.main import root
from hal.core.interfaces.policy import BucketView, JobView

ROOT: Final = Path(__file__).resolve().parent.parent

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)

# Written in pieces, so that this file does not contain what it looks for.
PRIVATE_PLACES: Final = tuple(
    "".join(parts)
    for parts in (
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("py", "pi.org"),
        ("python", "hosted"),
        ("registry.npm", "js"),
        ("deb.deb", "ian"),
        ("extra-in", "dex"),
        ("index-", "url"),
    )
)
"""Paths of one machine and addresses of package registries: neither belongs into a repository."""


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file under version control; outside a git checkout, every file that is not a build product."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        skipped = {".venv", ".git", "out", "__pycache__", "build", "dist"}
        paths = [path for path in ROOT.rglob("*") if not skipped & set(path.relative_to(ROOT).parts)]
    return tuple(path for path in paths if path.is_file())


@cache
def documents() -> tuple[Path, ...]:
    return tuple(path for path in tracked_files() if path.suffix == ".md")


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors of a Markdown file's headings, as GitHub makes them."""
    text = _FENCE.sub("", path.read_text())
    found: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (candidate := slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(candidate)
    return frozenset(found)


def make_targets() -> set[str]:
    """As `make help` lists them: `test-%` is `test-PLANE`."""
    names = re.findall(r"^([a-z][a-z%-]*):.*## ", (ROOT / "Makefile").read_text(), re.M)
    return {name.replace("%", "PLANE") for name in names}


def is_plane_target(word: str) -> bool:
    """Whether `test-PLANE` stands for that: a part of a path below `tests`."""
    plane = word.removeprefix("test-")
    return plane != word and any(plane in str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def commands_in(path: Path, program: str) -> set[str]:
    """The words that follow `program` where a document shows a command: in inline code and in shell blocks."""
    text = path.read_text()
    shell = "\n".join(body for language, body in _FENCE.findall(text) if language in ("", "sh", "bash", "console"))
    inline = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    lines = [line.removeprefix("$ ").strip() for line in (*shell.splitlines(), *inline)]
    return {
        word
        for line in lines
        for word in re.findall(rf"(?:^|&& |; |\| ){re.escape(program)} ([a-z][a-zA-Z-]*)(?![=\w])", line)
    }


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    """A link in any tracked Markdown file names something that is in the repository."""
    broken: list[str] = []
    for document in documents():
        text = _FENCE.sub("", document.read_text())
        for groups in _LINK.findall(text):
            link = next(part for part in groups if part)
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            if not target.exists():
                broken.append(f"{document.relative_to(ROOT)}: {link} (no such file)")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                broken.append(f"{document.relative_to(ROOT)}: {link} (no such heading)")
    assert not broken


def test_every_make_command_that_a_document_shows_exists() -> None:
    """`make X` in any document names a target of the Makefile."""
    targets = make_targets()
    shown = {(path.name, word) for path in documents() for word in commands_in(path, "make")}
    unknown = {(page, word) for page, word in shown if word not in targets and not is_plane_target(word)}
    assert not unknown


def test_every_make_target_is_documented() -> None:
    """AGENTS.md, the page that people build from, names each target of the Makefile."""
    assert make_targets() - commands_in(ROOT / "AGENTS.md", "make") == set()


def test_every_hal_command_that_a_document_shows_exists() -> None:
    """`hal X` in any document names a command of the program."""
    known = set(root.list_commands(click.Context(root)))
    shown = {word: path.name for path in documents() for word in commands_in(path, "hal")}
    assert {word: where for word, where in shown.items() if word not in known} == {}


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "docs" / "architecture.md"])
def test_python_in_documents_compiles(path: Path) -> None:
    """Every Python block of the pages that a newcomer copies from is valid Python."""
    for language, body in _FENCE.findall(path.read_text()):
        if language == "python":
            compile(body, str(path), "exec")


def test_no_tracked_file_names_one_machine_or_a_registry() -> None:
    """No tracked text names a private directory or the address of a package registry; a room of the repository may be
    called as one of these directories is."""
    private = re.compile("|".join(rf"(?<!\w){re.escape(p)}" if p[0] == "/" else re.escape(p) for p in PRIVATE_PLACES))
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {place}" for place in private.findall(text)]
    assert not found


def test_documents_lead_nowhere_outside_the_repository() -> None:
    """No relative link or path of a document climbs above the repository."""
    outside = [path.name for path in documents() if path.parent == ROOT and "](../" in path.read_text()]
    assert outside + [path.name for path in documents() if "../shared" in path.read_text()] == []


def test_constraints_are_plain_pins() -> None:
    """constraints.txt holds name==version lines and nothing else, and pins every dependency of pyproject.toml."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    pinned = {_canonical(line.partition("==")[0]) for line in lines}
    assert declared_dependencies() - pinned == set()


def test_every_dependency_has_its_reason() -> None:
    """docs/dependencies.md has a row for each dependency of pyproject.toml."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M)
    explained = {_canonical(name) for row in rows for name in re.findall(r"[A-Za-z][\w.-]+", row)}
    assert declared_dependencies() - explained == set()


def test_no_document_holds_the_marks_of_a_merge() -> None:
    """Tables that everybody appends to are where they stay behind."""
    marks = re.compile(r"^(<{7} |>{7} |={7}$)", re.M)
    assert [path.name for path in documents() if marks.search(path.read_text())] == []


def test_every_test_that_the_threat_model_names_exists() -> None:
    """Each party against each higher one, and which test shows what holds: files without a path are attacks."""
    page = (ROOT / "docs/security.md").read_text()
    named = re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", page)
    paths = [name if "/" in name else f"tests/attacks/{name}" for name in named]
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    rows = [line for line in page.partition("## What does not hold")[0].splitlines() if line.startswith("| ")]
    assert [row for row in rows[1:] if "test_" not in row and "---" not in row] == []


def test_every_page_and_decision_is_in_its_index() -> None:
    """docs/README.md links every page of docs, docs/decisions/README.md every record; no number is
    given twice."""
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text()
    pages = {path for path in documents() if path.is_relative_to(docs)} - {docs / "README.md"}
    top = {path for path in pages if path.parent == docs}
    assert {path.name for path in top if f"({path.name})" not in index} == set()
    records = sorted(path.name for path in pages if path.parent.name == "decisions" and path.name != "README.md")
    numbers = [int(name[:4]) for name in records]
    assert numbers == sorted(set(numbers))
    listed = (docs / "decisions" / "README.md").read_text()
    assert {name for name in records if f"({name})" not in listed} == set()


def declared_dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for group in project["optional-dependencies"].values() for name in group),
    ]
    return {_canonical(re.split(r"[<>=!~;\[ ]", name)[0]) for name in wanted}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_keyword_of_submit_is_in_the_python_page() -> None:
    """And the table has no other ones."""
    section = (ROOT / "docs" / "python.md").read_text().partition("| keyword | |\n")[2].partition("\n\n")[0]
    shown = [code for row in section.splitlines()[1:] for code in re.findall(r"`([a-z_]+)[`=]", row.split("|")[1])]
    assert sorted(shown) == sorted(hal.JobOptions.__annotations__)


def test_the_plugin_page_names_every_column_that_an_order_receives() -> None:
    """Of jobs and of buckets."""
    text = (ROOT / "docs" / "plugins.md").read_text().partition("An `Order` receives waiting jobs (")[2]
    jobs, buckets = text.partition(") and buckets (")[0], text.partition(") and buckets (")[2].partition(")")[0]
    for listed, view in ((jobs, JobView), (buckets, BucketView)):
        assert re.findall(r"`([a-z_]+)`", listed) == [name for name in view.__struct_fields__ if name != "advice"]


def test_the_pages_list_the_same_variables_of_a_step() -> None:
    """docs/keeper.md says what each is; docs/jobspec.md lists them for whoever writes a job."""
    keeper = (ROOT / "docs" / "keeper.md").read_text().partition("- **Variables**")[2].partition("\n- **")[0]
    jobspec = (ROOT / "docs" / "jobspec.md").read_text().partition("## What a task sees")[2].partition("\n## ")[0]
    assert set(re.findall(r"HAL_[A-Z_]+", jobspec)) == set(re.findall(r"HAL_[A-Z_]+", keeper))
