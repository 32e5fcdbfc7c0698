"""`hal secret`: values that jobs use by name, and that nobody reads back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.secret_calls import SecretInfo

COLUMNS = ("NAME", "OWNER", "VERSION", "SET", "BY")

secret = NounGroup(
    "secret",
    help="Jobs name secrets and find them as files; HAL stores them encrypted and shows them to nobody.",
    epilog="Example: hal secret set db-password --from-file password.txt",
)


@command(
    "set",
    output=True,
    examples="""
    hal secret set db-password                              # prompts for it, without echo
    pass show db | hal secret set db-password               # from standard input, without the last newline
    hal secret set deploy-key --from-file ~/.ssh/deploy     # byte for byte
    hal secret set s3-key --account physics --from-file key # for the jobs of a closed account that you coordinate
    """,
)
@click.argument("name")
@click.option("--from-file", metavar="FILE", help="Read the value from this file, byte for byte.")
@click.option("-A", "--account", metavar="NAME", default="", help="Set it for the jobs of this closed account.")
@click.option("--user", is_flag=True, help="Set it for your own jobs (the default).")
@pass_screen
def set_secret(screen: Screen, name: str, from_file: str | None, account: str, user: bool) -> None:
    """Create or replace a secret.

    The value is never an argument: other users of the machine see those. Jobs use it with `--secret NAME`.
    """
    from hal.client.rest import secret_calls

    if account and user:
        raise click.UsageError("--user and --account exclude each other")
    value = _read_file(from_file) if from_file is not None else _read_value(name)
    made = screen.client.call(secret_calls.set_secret(name, value, account=account))
    screen.show(made, lambda: screen.line(f"{made.name} of {_owner(made)}, version {made.version}"))


@command("list", output=True, examples="hal secret list")
@pass_screen
def list_secrets(screen: Screen) -> None:
    """List secrets, without their values: those that your jobs may use, or all if you are an operator."""
    from hal.cli.kit.formats import instant
    from hal.client.rest import secret_calls

    found = screen.client.call(secret_calls.secrets())

    def render() -> None:
        if found:
            rows = [(one.name, _owner(one), str(one.version), instant(one.set_ms), one.set_by) for one in found]
            screen.table(COLUMNS, rows)
        else:
            screen.note("there are no secrets; create one: hal secret set NAME")

    screen.show(found, render)


@command(
    "remove",
    output=True,
    examples="""
    hal secret remove db-password
    hal secret remove s3-key --account physics
    """,
)
@click.argument("name")
@click.option("-A", "--account", metavar="NAME", default="", help="Remove it from this account.")
@click.option("-u", "--user", metavar="NAME", default="", help="Remove it from this user (default: you).")
@pass_screen
def remove(screen: Screen, name: str, account: str, user: str) -> None:
    """Remove a secret. Steps that have it keep it until they end; later starts of jobs that name it fail."""
    from hal.client.rest import secret_calls

    if account and user:
        raise click.UsageError("--user and --account exclude each other")
    gone = screen.client.call(secret_calls.remove_secret(name, account=account, user=user))
    screen.show(gone, lambda: screen.line(f"{gone.name} of {_owner(gone)} removed"))


@command("rotate-key", output=True, examples="hal secret rotate-key")
@pass_screen
def rotate_key(screen: Screen) -> None:
    """Create a new key in HAL_HOME/secrets.key, store every secret under it, and forget the old one.

    Keep a copy of the new file with your backups: a backup contains secrets only as they are stored.
    """
    from hal.client.rest import secret_calls

    done = screen.client.call(secret_calls.rotate_key())

    def render() -> None:
        screen.line(f"key {done.key}: {done.sealed} secrets")
        if done.left:
            screen.note(f"{done.left} secrets could not be opened and stay as they are; set them again")

    screen.show(done, render)


def _owner(one: SecretInfo) -> str:
    return f"account {one.account}" if one.account else f"user {one.user}"


def _read_file(name: str) -> bytes:
    """
    Raises:
        SpecError, NotFoundError, DeniedError: it cannot be read, or is too long.
    """
    from hal.core.model import DeniedError, NotFoundError, SpecError
    from hal.core.model.secret import MAX_SECRET_BYTES

    try:
        with Path(name).open("rb") as file:
            value = file.read(MAX_SECRET_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"file '{name}' does not exist", hint=f"the current directory is {Path.cwd()}") from None
    except PermissionError:
        raise DeniedError(f"file '{name}' may not be read by you", hint=f"see its permissions: ls -l {name}") from None
    except OSError as error:
        raise SpecError(f"file '{name}' cannot be read: {error.strerror or error}") from error
    return _checked(value, f"file '{name}'")


def _read_value(name: str) -> bytes:
    """From the terminal without echo, or standard input without its last newline."""
    from hal.core.model.secret import MAX_SECRET_BYTES

    if sys.stdin.isatty():
        text: str = click.prompt(f"Value of {name}", hide_input=True, err=True)
        return _checked(text.encode(), "the value")
    value = sys.stdin.buffer.read(MAX_SECRET_BYTES + 3)
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    return _checked(value, "standard input")


def _checked(value: bytes, what: str) -> bytes:
    from hal.core.model import SpecError
    from hal.core.model.secret import MAX_SECRET_BYTES

    if not value:
        raise SpecError(f"{what} is empty", hint="a secret has at least one byte; hal secret remove deletes one")
    if len(value) > MAX_SECRET_BYTES:
        raise SpecError(
            f"{what} is longer than {MAX_SECRET_BYTES} bytes",
            hint="encrypt the data, keep it in a file, and make its key the secret",
        )
    return value


secret.add_command(set_secret)
secret.add_command(list_secrets)
secret.add_command(remove)
secret.add_command(rotate_key)
