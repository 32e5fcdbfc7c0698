"""What a shell completes as the value of an option or argument: jobs, nodes, queues, users and other names; files.

Names are asked of the HAL that the command line names, for at most `TIME_LIMIT_S`; whatever goes wrong completes
nothing and prints nothing.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo
    from hal.client.sync_client import Client

TIME_LIMIT_S: Final = 2.0
"""After so long nothing is completed."""
MAX_JOBS: Final = 100
"""The newest jobs that are offered, or whose names and users are."""
_BY_OPTION: Final = {
    "--queue": "queue", "--account": "account", "--qos": "qos", "--booking": "booking", "--node": "node",
    "--user": "user", "--job": "job", "--state": "state", "--columns": "column", "--sort": "column", "--after": "job",
    "--gate": "gate", "--licence": "licence",
}  # fmt: skip
_BY_GROUP: Final = {
    "queue": "queue", "account": "account", "qos": "qos", "limit": "limit", "booking": "booking", "gate": "gate",
    "node": "node", "licences": "licence", "cron": "cron", "secret": "secret", "offer": "offer", "reader": "reader",
}  # fmt: skip
"""What the argument `name` of a command in such a group is."""
_TABLES: Final = {
    "queue": "queues", "account": "accounts", "qos": "qos", "limit": "limits", "booking": "bookings", "gate": "gates",
    "licence": "licences",
}  # fmt: skip
"""Where the policy has such names."""
_LIVE_ONLY: Final = frozenset(
    {"cancel", "hold", "release", "update", "why", "evict", "attach", "exec", "forward", "launch", "replace"}
)
"""Commands on jobs that have not ended."""
_WORD: Final = re.compile("[A-Z]+")
_NEW: Final = frozenset({"add", "put"})
"""Commands that give something a new name."""


def complete_values(param: click.Parameter) -> None:
    """Let a parameter complete its values, if they are of a kind that HAL can name."""
    own = param.shell_complete
    if getattr(own, "__self__", None) is not param:
        return  # it does so already

    def shell_complete(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        if place := _place_of(param):
            return [CompletionItem(incomplete, type=place)]
        kind = kind_of(ctx, param)
        return own(ctx, incomplete) if kind is None else values_of(ctx, kind, incomplete)

    param.shell_complete = shell_complete


def _place_of(param: click.Parameter) -> str:
    """`file` or `dir` where the shell itself completes one, as the metavar says; else ''."""
    if isinstance(param.type, click.Choice | click.Path):
        return ""
    if param.type is click.UNPROCESSED and isinstance(param, click.Argument):
        return "file"  # a command to run
    named = set(_WORD.findall(param.metavar or ""))
    return "file" if named & {"FILE", "SCRIPT"} else "dir" if "DIR" in named else ""


def kind_of(ctx: click.Context, param: click.Parameter) -> str | None:
    """What the values of a parameter are; None where HAL has no list of them."""
    if isinstance(param.type, click.Choice | click.Path) or (isinstance(param, click.Option) and param.is_flag):
        return None
    if isinstance(param, click.Option):
        if param.metavar == "LEVEL":  # --within is a time elsewhere
            return "level"
        if "--name" in param.opts:
            return "name" if "-n" in param.opts else None
        return next((_BY_OPTION[name] for name in param.opts if name in _BY_OPTION), None)
    metavar = param.metavar or ""
    if "JOB" in metavar:
        return "job"
    if "NODE" in metavar:
        return "node"
    group = ctx.parent.info_name if ctx.parent is not None else None
    if param.name in ("name", "names") and ctx.info_name not in _NEW:
        return _BY_GROUP.get(group or "")
    return None


def values_of(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem[str]]:
    """Values of a kind that begin with what is typed; behind the last comma where the kind is a comma list."""
    before, _, begun = incomplete.rpartition(",") if kind in _COMMA_LISTS else ("", "", incomplete)
    before = f"{before}," if before else ""
    try:
        with _time_limit():
            found = {value: text for value, text in _FINDERS[kind](ctx) if value.startswith(begun)}
    except Exception:  # a shell shows whatever is printed here in the middle of what is being typed
        return []
    return [CompletionItem(before + value, help=text or None) for value, text in found.items() if value.isprintable()]


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Interrupt whatever takes longer, also a server that does not answer."""

    def over(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Found = Iterable[tuple[str, str]]
"""Values, each with what a shell may show beside it."""


def _client(ctx: click.Context) -> Client:
    from hal.client.sync_client import Client

    return Client(ctx.ensure_object(Screen).address, reconnect_s=0)


def _newest(ctx: click.Context) -> list[JobInfo]:
    states = {"state": "live"} if ctx.info_name in _LIVE_ONLY else {"state": "ended"} if ctx.info_name == "rm" else {}
    with _client(ctx) as client:
        return list(client.jobs(limit=MAX_JOBS, **states))


def _jobs(ctx: click.Context) -> Found:
    return [(info.id, f"{info.state} {info.name}".strip()) for info in _newest(ctx)]


def _job_names(ctx: click.Context) -> Found:
    return [(info.name, "") for info in _newest(ctx) if info.name and " " not in info.name]


def _users(ctx: click.Context) -> Found:
    return [(name, "") for name in sorted({info.user for info in _newest(ctx)})]


def _nodes(ctx: click.Context) -> Found:
    with _client(ctx) as client:
        return [(node.name, node.state.value) for node in client.nodes()]


def _entries(kind: str) -> Callable[[click.Context], Found]:
    def names(ctx: click.Context) -> Found:
        from hal.client.rest import policy_calls

        with _client(ctx) as client:
            entries = getattr(client.call(policy_calls.policy()).value, _TABLES[kind])
        return [(name, "") for name in sorted(entries)]

    return names


def _cron_jobs(ctx: click.Context) -> Found:
    with _client(ctx) as client:
        return [(one.name, one.schedule) for one in client.cron_jobs(user=ctx.params.get("user") or "", limit=MAX_JOBS)]


def _secrets(ctx: click.Context) -> Found:
    with _client(ctx) as client:
        return [(one.name, "") for one in client.secrets()]


def _offers(ctx: click.Context) -> Found:
    with _client(ctx) as client:
        return [(one.name, "") for one in client.offers()]


def _readers(ctx: click.Context) -> Found:
    from hal.client.rest import feed_calls

    with _client(ctx) as client:
        return [(one.name, "") for one in client.call(feed_calls.readers())]


def _levels(ctx: click.Context) -> Found:
    from hal.client.rest import topology_calls

    with _client(ctx) as client:
        return [(level, "") for level in client.call(topology_calls.topology()).levels]


def _states(ctx: click.Context) -> Found:
    from hal.cli.jobs.job_filters import STATE_GROUPS
    from hal.core.model import AttemptState, TaskState

    if ctx.info_name == "attempts":
        return [(state.value, "") for state in AttemptState if state.ended]
    return [(name, "") for name in (*(state.value for state in TaskState), *STATE_GROUPS)]


def _columns(ctx: click.Context) -> Found:
    from hal.cli.jobs.job_columns import COLUMNS

    return [(name, column.help) for name, column in COLUMNS.items()]


_COMMA_LISTS: Final = frozenset({"state", "column"})
_FINDERS: Final[dict[str, Callable[[click.Context], Found]]] = {
    "job": _jobs, "name": _job_names, "user": _users, "node": _nodes, "state": _states, "column": _columns,
    "cron": _cron_jobs, "secret": _secrets, "offer": _offers, "reader": _readers, "level": _levels,
    **{kind: _entries(kind) for kind in _TABLES},
}  # fmt: skip
