"""Streams to running steps: which step is meant, a ticket for it, and where its holder finds the node.

The controller only introduces the two ends to each other: a stream outlives it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import ConflictError, NotFoundError, SpecError, StepId, UnreachableError, shown
from hal.core.model.rank_variables import MAX_RANKS_OF_NODE
from hal.daemons.controller.config_sections import RelayMode
from hal.daemons.controller.service.jobs.refusals import no_job, no_task
from hal.daemons.controller.service.parts import Parts
from hal.wire.bounds import MAX_NAME, MAX_WORDS
from hal.wire.frames.controller_agent import OpenStream, StreamKind

MAX_COMMAND_BYTES: Final = 128 << 10
"""Program and arguments together."""
MAX_SIZE: Final = 10_000
"""Rows, and columns, of a terminal."""
MAX_NAMED: Final = 16
"""Nodes that an error names."""
"""Processes that one launch begins on a node."""
MAX_SIZE_OF_LAUNCH: Final = 65_536
"""Ranks of a launch, on all nodes together."""


class StreamBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The stream to open."""

    kind: StreamKind = StreamKind.EXEC
    task: int = 0
    rank: int = 0
    """Index of the node in a gang."""
    argv: list[str] = []
    """For `exec` and `launch`: program and arguments."""
    terminal: bool = False
    """For `exec`: on a terminal of its own."""
    term: str = ""
    """Kind of the terminal: the value of TERM."""
    rows: int = 0
    columns: int = 0
    port: int = 0
    """For `forward`: the TCP port."""
    ranks: int = 0
    """For `launch`: how many processes to begin on this node."""
    first_rank: int = 0
    """For `launch`: the rank of the first of them; the others follow, `stride` apart."""
    size: int = 0
    """For `launch`: the number of ranks on all nodes together."""
    stride: int = 1
    bind: bool = False
    """For `launch`: each rank keeps to its own part of the step's CPUs, if the step has CPUs of its own."""
    node: str = ""
    """Name of the node, instead of its rank."""
    relay: bool = False
    """The node could not be reached: meet it at a relay, if it is not on the caller's machine."""
    here: bool = False
    """The caller is a process on the controller's machine and comes to a Unix socket."""


class StreamView(Struct, frozen=True, kw_only=True):
    """How an opened stream is reached, within seconds."""

    step: str
    """`JOB.TASK.ATTEMPT.RANK`"""
    node: str
    ticket: str
    """To be shown as the first message; good for one connection."""
    socket: str = ""
    """Unix socket on the caller's machine."""
    address: str = ""
    """`HOST:PORT` of the node, to be dialled with TLS; without a host, that at which the controller is reached."""
    fingerprint: str = ""
    """SHA-256 of the certificate (DER) that is presented there, in hex; no other one is to be believed."""
    relay: str = ""
    """`HOST:PORT` of a relay, instead of the node's address; without a host, that of the controller."""
    meeting: str = ""
    """To be named there before anything else."""


class Target(NamedTuple):
    """The step that is meant."""

    step: StepId
    node: str
    user: str


class Streams:
    """Open them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def find(self, job: int, task: int, rank: int, node: str = "") -> Target:
        """The running step that is meant.

        Args:
            node: its node, by name, instead of its rank.
        Raises:
            NotFoundError: no such job, task or rank.
            SpecError: both a rank and a node are named.
            ConflictError: it is not running.
        """
        live = self._parts.plane.job(job)
        if live is None:
            row = await self._parts.committer.read(lambda store: store.job(job))
            if row is None:
                raise no_job(job)
            if not 0 <= task < row.tasks:
                raise no_task(row, task)
            raise ConflictError(f"job {job} has ended", hint=f"its output: hal logs {job}")
        state = live.task_state(task)
        if state is None:
            raise NotFoundError(f"job {job} has no task {task}", hint=f"hal show {job}")
        active = live.active.get(task)
        if active is None or not active.nodes:
            raise ConflictError(f"task {job}.{task} is not running: it is {state}", hint=f"hal why {job}")
        if node and rank:
            raise SpecError("rank, node: one of them says which step is meant")
        if node:
            if node not in active.nodes:
                names = ", ".join(active.nodes[:MAX_NAMED])
                raise NotFoundError(f"task {job}.{task} is not on node '{shown(node)}'", hint=f"it runs on {names}")
            rank = active.nodes.index(node)
        if not 0 <= rank < len(active.nodes):
            raise NotFoundError(
                f"task {job}.{task} has no rank {rank}", hint=f"its ranks are 0 to {len(active.nodes) - 1}"
            )
        return Target(StepId(job, task, active.attempt, rank), active.nodes[rank], live.user)

    async def open(self, target: Target, asked: StreamBody, by: str) -> StreamView:
        """Let the caller reach a step.

        Raises:
            SpecError: the request is malformed.
            UnreachableError: the node is not heard, or cannot be reached from where the caller is.
            HALError: as the node says.
        """
        _check(asked)
        new_id = self._parts.runtime.new_id
        ticket = new_id() + new_id()
        relays, port, meeting = self._parts.relays, 0, ""
        if (asked.relay or relays.mode is RelayMode.ALWAYS) and not self._parts.agents.is_local(
            target.node, here=asked.here
        ):
            meeting = new_id() + new_id()
            port = await relays.arrange(self._parts.runtime, meeting, by)
        opened = await self._parts.agents.open_stream(
            target.node,
            OpenStream(
                request=0,
                step=target.step,
                kind=asked.kind,
                ticket=ticket,
                argv=tuple(asked.argv),
                terminal=asked.terminal,
                term=asked.term,
                rows=asked.rows,
                columns=asked.columns,
                port=asked.port,
                ranks=asked.ranks,
                first_rank=asked.first_rank,
                size=asked.size,
                stride=asked.stride,
                bind=asked.bind,
                by=by,
                relay=port,
                meeting=meeting,
            ),
            here=asked.here,
        )
        found = StreamView(step=str(target.step), node=target.node, ticket=ticket, socket=opened.path)
        if port:
            at = f"{self._parts.reached}:{port}"
            return replace(found, relay=at, meeting=meeting, fingerprint=opened.fingerprint)
        if not opened.port:
            return found
        row = self._parts.plane.nodes.get(target.node)
        host = "" if row is None else row.about.facts.address
        if not host and not self._parts.agents.is_local(target.node, here=True):
            raise UnreachableError(f"it is not known where node '{target.node}' is reached", hint="hal nodes")
        at = f"[{host}]:{opened.port}" if ":" in host else f"{host}:{opened.port}"
        return replace(found, address=at, fingerprint=opened.fingerprint)


def _are_ranks(asked: StreamBody) -> bool:
    """Whether they are ranks of one launch: at least one, none beyond the last."""
    if not (1 <= asked.ranks <= MAX_RANKS_OF_NODE and asked.size <= MAX_SIZE_OF_LAUNCH and asked.stride >= 1):
        return False
    return asked.first_rank >= 0 and asked.first_rank + (asked.ranks - 1) * asked.stride < asked.size


def _check(asked: StreamBody) -> None:
    """Raises:
    SpecError: something of it is out of bounds.
    """
    if asked.kind in (StreamKind.EXEC, StreamKind.LAUNCH):
        if not asked.argv or not asked.argv[0]:
            raise SpecError("argv: there is no command to run")
        size = sum(len(word.encode(errors="surrogatepass")) for word in asked.argv)
        if len(asked.argv) > MAX_WORDS or size > MAX_COMMAND_BYTES or any("\0" in word for word in asked.argv):
            raise SpecError(f"argv: at most {MAX_WORDS} words of {MAX_COMMAND_BYTES >> 10} KiB together, without NUL")
    elif asked.argv:
        raise SpecError(f"argv: {asked.kind} runs no command")
    if (asked.kind is StreamKind.FORWARD) != bool(asked.port) or not 0 <= asked.port <= 65_535:
        raise SpecError("port: forward needs a port from 1 to 65535, and nothing else has one")
    if asked.kind is not StreamKind.LAUNCH:
        if asked.ranks or asked.first_rank or asked.size or asked.stride != 1 or asked.bind:
            raise SpecError("ranks, first_rank, size, stride, bind: only launch has them")
    elif asked.terminal:
        raise SpecError("terminal: ranks have none", hint="exec runs one command on a terminal")
    elif not _are_ranks(asked):
        raise SpecError(
            f"ranks, first_rank, size, stride: 1 to {MAX_RANKS_OF_NODE} ranks on a node, "
            f"of at most {MAX_SIZE_OF_LAUNCH} in all"
        )
    if not (0 <= asked.rows <= MAX_SIZE and 0 <= asked.columns <= MAX_SIZE):
        raise SpecError(f"rows, columns: between 0 and {MAX_SIZE}")
    if len(asked.term) > MAX_NAME or not asked.term.isprintable():
        raise SpecError("term: this is no kind of terminal")
