"""Every command that documentation, help, hints and errors name is there, with the options that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from hal.cli.main import root

HERE = Path(__file__).parents[2]
FENCED = re.compile(r"```.*?```", re.DOTALL)
"""Blocks of commands: other tests run them."""
INLINE = re.compile(r"`(hal [^`\n]+)`")
HINTED = re.compile(r"`(hal [^`\n]+)`|: (hal [a-z-]+[^`;,()\n]*)$")
SOMETHING = " SOMETHING "
"""What stands where a message has a value."""
NOT_THERE = {"hal cancel --all"}
"""Named because it is not."""


def texts_of(source: str) -> Iterator[str]:
    """The texts of a module, those with values in them too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else SOMETHING for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named() -> Iterator[tuple[str, str]]:
    """Where a command is named, and the command."""
    for page in (HERE / "README.md", HERE / "CHANGELOG.md", *sorted((HERE / "docs").rglob("*.md"))):
        for found in INLINE.finditer(FENCED.sub("", page.read_text())):
            yield page.name, found[1]
    for module in sorted((HERE / "src").rglob("*.py")):
        for text in texts_of(module.read_text()):
            for found in HINTED.finditer(text):
                yield str(module.relative_to(HERE)), found[1] or found[2]


def fault_of(line: str) -> str:
    """What of a command line is not there; '' for nothing."""
    first = re.split("&&|[|>]", line.replace("'", "").replace('"', ""))[0]
    words = first.partition(" #")[0].split()[1:]
    command: click.Command = root
    context = click.Context(root, info_name="hal")
    while words and isinstance(command, click.Group):
        word = words.pop(0)
        if word.startswith("-") or not re.fullmatch("[a-z-]+", word):
            continue
        found = command.get_command(context, word)
        if found is None:
            return f"no command {word}"
        command, context = found, click.Context(found, info_name=word, parent=context)
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    for word in words[: words.index("--")] if "--" in words else words:
        option = word.partition("=")[0].rstrip(",;.:")
        if re.fullmatch("--[a-z-]+|-[a-zA-Z]", option) and option not in known:
            return f"no option {option}"
    return ""


def test_commands_that_are_named_are_there() -> None:
    """Hundreds of them: who types what an error or a page says is not told that there is no such thing."""
    lines = list(named())
    assert len(lines) > 1_000
    assert [(where, line, fault) for where, line in lines if (fault := fault_of(line)) and line not in NOT_THERE] == []
