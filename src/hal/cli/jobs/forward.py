"""`hal forward`: reach a TCP port that a running step serves, at a port of this machine."""

from __future__ import annotations

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen


@command(
    "forward",
    examples="""
    hal forward 42 8888              # http://127.0.0.1:8888 is port 8888 of job 42
    hal forward 42.7 8888:9000       # 127.0.0.1:8888 is its port 9000
    hal forward 42 0:8888            # at any free port, which is printed
    hal forward 42 8888:http         # the port of a service that is called http
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.argument("ports", metavar="PORT[:PORT|:NAME]")
@click.option("--rank", type=click.IntRange(0), default=0, metavar="R", help="Rank within a gang (default: 0).")
@click.option("--node", default="", metavar="NAME", help="Node of a gang, instead of its rank.")
@pass_screen
def forward(screen: Screen, job: str, ports: str, rank: int, node: str) -> int:
    """Connections to the first port, on the loopback device of this machine, go to the second one, inside the step.
    Only what the step's user serves there is reached.

    It goes on until Ctrl-C, or until the job has ended.
    """
    from hal.cli.jobs.exec import task_ref
    from hal.cli.jobs.port_forwarding import Forwarding
    from hal.client.step_streams import connections_of

    here, there = _ports(ports)
    number, task = task_ref(job)
    if isinstance(there, str):
        there = _port_named(screen, number, task, there)
    with Forwarding(connections_of(screen.address), number, there, task=task, rank=rank, node=node) as forwarding:
        forwarding.check(runs=True)
        at = forwarding.listen(here)
        screen.line(f"127.0.0.1:{at} is port {there} of {job}")
        screen.out.flush()
        try:
            forwarding.serve(screen.note)
        except KeyboardInterrupt:
            return exit_codes.OK
    return exit_codes.OK


def _ports(text: str) -> tuple[int, int | str]:
    """The port here, and the port there or its name."""
    here, colon, there = text.partition(":")
    there = there if colon else here
    if here.isdecimal() and int(here) < 1 << 16:
        if there.isdecimal() and 0 < int(there) < 1 << 16:
            return int(here), int(there)
        if there and not there.isdecimal():
            return int(here), there
    raise click.UsageError(f"'{text}' is not PORT, PORT:PORT or PORT:NAME; write 8888, 8888:9000 or 8888:http")


def _port_named(screen: Screen, number: int, task: int, name: str) -> int:
    """The port of a task of a service that has this name.

    Raises:
        NotFoundError: the job is no service, or has no such port.
        ConflictError: the task is not ready.
    """
    from hal.core.model import ConflictError, NotFoundError

    info = screen.client.job(number).info
    ports = list(((info.spec or {}).get("service") or {}).get("ports", ()))
    if name not in ports:
        has = f"its ports: {', '.join(ports)}" if ports else "it names none; write the port's number"
        raise NotFoundError(f"job {number} has no port '{name}'", hint=has)
    found = screen.client.service(info.name, user=info.user)
    for one in found.endpoints:
        if (one.job, one.task) == (str(number), task) and name in one.ports:
            return one.ports[name]
    raise ConflictError(f"task {number}.{task} is not ready, so its ports are not known", hint=f"hal why {number}")
