"""`hal certificate`: certificates of brokers, workers, clients and services, which they ask for with a join token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen
from hal.cli.nodes.token import ROLES

if TYPE_CHECKING:
    from hal.client.rest.joining_calls import CertificateInfo

COLUMNS = ("ROLE", "NAME", "STATE", "ISSUED", "EXPIRES", "TOKEN", "SERIAL")
OTHERS = ROLES[1:]

certificate = NounGroup(
    "certificate",
    help="Processes of HAL on different machines know each other by certificates of HAL's authority.",
    epilog="Example: hal token create --role service --name cache-1; then on the other machine: "
    "hal certificate request /etc/cache/hal --role service --name cache-1 --join TOKEN --controller HOST",
)


@command("list", output=True, examples="hal certificate list\nhal certificate list --role service")
@click.option("--role", type=click.Choice(ROLES), help="Only of this role.")
@click.option("--name", metavar="NAME", help="Only of this node or process.")
@pass_screen
def list_certificates(screen: Screen, role: str | None, name: str | None) -> None:
    """List the certificates of nodes and of processes of other roles.

    Those that were revoked or have expired are listed for a day or longer.
    """
    from hal.client.rest import joining_calls

    found = screen.client.call(joining_calls.certificates(role or "", name or ""))

    screen.show_list(
        found, COLUMNS, _cells, "there are no such certificates; processes ask for them: hal certificate request --help"
    )


@command("revoke", output=True, examples="hal certificate revoke service cache-1")
@click.argument("role", type=click.Choice(OTHERS))
@click.argument("name")
@pass_screen
def revoke(screen: Screen, role: str, name: str) -> None:
    """Revoke the certificates of a process: they are not renewed any more.

    Other processes accept them until they expire. Those of a node: `hal node revoke`.
    """
    from hal.client.rest import joining_calls

    revoked = screen.client.call(joining_calls.revoke_certificates(role, name))
    screen.show(revoked, lambda: screen.table(COLUMNS, [_cells(one) for one in revoked]))


@command(
    "request",
    output=True,
    examples="""
    hal certificate request /etc/cache/hal --role service --name cache-1 --join - --controller head   # reads the token
    """,
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice(OTHERS), required=True, help="Role of the process, as the token has it.")
@click.option("--name", required=True, metavar="NAME", help="Name of the process.")
@click.option("--join", "token", required=True, metavar="TOKEN", help="Join token; - reads it from standard input.")
@click.option("--controller", required=True, metavar="HOST[:PORT],…", help="Addresses of the controllers.")
@pass_screen
def request(screen: Screen, directory: Path, role: str, name: str, token: str, controller: str) -> None:
    """Get the certificate of a process on this machine, with a token.

    DIRECTORY is created, for this user only. It gets certificate.pem, which holds the certificate and its key, and
    authority.pem, by which other processes are known.
    """
    from hal.cli.local.join_exchange import request as ask
    from hal.core.model import ConflictError
    from hal.runtime.authority import Identity
    from hal.runtime.home import check_node_name, find_home
    from hal.wire.address import parse_controllers
    from hal.wire.join_token import read_join_token
    from hal.wire.roles import Role

    joining = read_join_token(screen.stdin.readline() if token == "-" else token)
    addresses = parse_controllers(controller)
    identity = Identity(directory)
    if identity.joined:
        held = identity.certified()
        raise ConflictError(
            f"{directory} has a certificate of {held.role} '{held.name}'",
            hint=f"renew it: hal certificate renew {directory}",
        )
    home = find_home(screen.home)
    home.create()
    ask(home, identity, Role(role), check_node_name(name), joining, addresses)
    _print(screen, directory)


@command(
    "renew",
    output=True,
    examples="""
    hal certificate renew /etc/cache/hal --controller head   # every hour, say, from a timer
    """,
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--controller", required=True, metavar="HOST[:PORT],…", help="Addresses of the controllers.")
@click.option("--now", "at_once", is_flag=True, help="Also if less than two thirds of its lifetime have passed.")
@pass_screen
def renew(screen: Screen, directory: Path, controller: str, at_once: bool) -> None:
    """Renew the certificate of a process on this machine, if two thirds of its lifetime have passed.

    The process must then read its files again.
    """
    import time

    from hal.cli.kit.formats import instant
    from hal.cli.local.join_exchange import renew as ask
    from hal.runtime.authority import Identity
    from hal.runtime.home import find_home
    from hal.wire.address import parse_controllers

    identity, addresses = Identity(directory), parse_controllers(controller)
    due_ms = identity.renewal_ms()
    if not at_once and time.time_ns() // 1_000_000 < due_ms:
        screen.note(f"it is due for renewal at {instant(due_ms)}; --now renews it at once")
    else:
        home = find_home(screen.home)
        home.create()
        ask(home, identity, addresses)
    _print(screen, directory)


def _print(screen: Screen, directory: Path) -> None:
    from hal.cli.kit.formats import instant
    from hal.runtime.authority import Identity

    identity = Identity(directory)
    held, due_ms = identity.certified(), identity.renewal_ms()
    found = {
        "directory": str(directory),
        "role": held.role,
        "name": held.name,
        "serial": held.serial,
        "renewal_ms": due_ms,
    }
    screen.show(
        found,
        lambda: screen.line(
            f"{held.role} {held.name}: certificate in {directory}, due for renewal at {instant(due_ms)}"
        ),
    )


def _cells(one: CertificateInfo) -> tuple[str, ...]:
    import time

    from hal.cli.kit.formats import NOTHING, instant

    ended = "expired" if one.expires_ms <= time.time_ns() // 1_000_000 else "valid"
    state = ended if one.revoked_ms is None else "revoked"
    return (
        one.role,
        one.name,
        state,
        instant(one.issued_ms),
        instant(one.expires_ms),
        one.token or NOTHING,
        one.serial,
    )


for one in (list_certificates, revoke, request, renew):
    certificate.add_command(one)
