"""`hal simulate --cluster`: the file of a cluster, and jobs that say what they ask for, a line of JSON each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from hal.core.model import JobSpec, SpecError
from hal.core.model.errors import shown

if TYPE_CHECKING:
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.population import Population
    from hal.daemons.twin.swf import Log, Workload

TIMES: Final = ("submit", "run")
"""What a line has beside the keywords of `submit`: when it is submitted, since the beginning, and how long it runs."""
NOT_PLAYED: Final = (
    "array", "items", "max_running", "after", "begin", "hold", "retries", "service", "on_node_lost"
)  # fmt: skip
"""Keywords that would change what runs when, and are not simulated."""
MAX_JOBS: Final = 10_000_000
_KEYS: Final = ("topology", "nodes")
_NOBODY: Final = "unknown"
_MILLI: Final = 1000


def read_cluster(file: Path) -> Machine:
    """The machine that a file describes.

    Raises:
        SpecError: it cannot be read, or there is a mistake in it.
    """
    from hal.core.model.text import plain_from_text
    from hal.daemons.twin.cluster import cluster_of
    from hal.daemons.twin.machine import Machine

    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror or error}", hint="name the file of a cluster") from error
    except UnicodeDecodeError:
        raise SpecError(f"{file} is not UTF-8 text", hint="name the file of a cluster") from None
    try:
        raw = plain_from_text(text, kind="toml")
    except SpecError as error:
        raise SpecError(f"{file}: {error.message}", hint=error.hint) from error
    for key in raw:
        if key not in _KEYS:
            raise SpecError(f"{file}: unknown key '{shown(key)}'", hint=f"it has {' and '.join(_KEYS)}")
    nodes = raw.get("nodes", {})
    if not isinstance(nodes, dict):
        raise SpecError(f"{file}: nodes: not a table", hint='[nodes."n[01-16]"], and below it cpus = 64')
    topology = _topology(file, raw["topology"]) if "topology" in raw else None
    return Machine.of_cluster(cluster_of(str(file), nodes, topology))


def _topology(file: Path, raw: Any) -> Any:
    """The topology of a section as of hal.toml. Raises SpecError."""
    from hal.core.model.codec import convert
    from hal.core.model.topology.tree import renamed, topology_of_labels
    from hal.daemons.controller.config import LEVELS
    from hal.daemons.controller.config_sections import TopologySection, check_topology
    from hal.runtime.topology_file import read_topology

    try:
        section = convert(raw, TopologySection)
        check_topology(section)
    except SpecError as error:
        raise SpecError(f"{file}: [topology]: {error.message}", hint=error.hint) from error
    if "compact" in raw:
        raise SpecError(f"{file}: [topology]: compact is no matter of the nodes", hint="compare with --placement")
    if section.file:
        found = read_topology(file.absolute().parent, section.file)
        return renamed(found, section.levels, LEVELS) if section.levels else found
    return topology_of_labels(section.levels, LEVELS) if section.levels else None


def read_jobs(name: str, stream: BinaryIO | None, first: int | None, scale: float) -> tuple[Log, Workload, Population]:
    """The jobs of a file, by the instant of submission, and whose they are.

    Args:
        name: of the file; of the stream if there is one.
        first: only so many. scale: factor on the time between submissions.
    Raises:
        SpecError, NotFoundError, DeniedError: it cannot be read, or there is a mistake in it; names the line.
    """
    import numpy as np

    from hal.daemons.twin.population import Population
    from hal.daemons.twin.swf import Log, LogError, Workload, read_bytes
    from hal.daemons.twin.swf_lines import LogRows

    reader = _Reader(name)
    for number, line in enumerate(read_bytes(name, stream).split(b"\n"), 1):
        if line.strip():
            reader.read(number, line)
    if not reader.rows:
        raise LogError(f"{name} has no job", hint='expected lines like {"submit": 0, "run": "1h", "gpus": "a100:2"}')
    table = np.array(reader.rows, np.int64)
    table = table[np.argsort(table[:, 1], kind="stable")][:first]
    submit_s, kind = table[:, 1], table[:, 3]
    if scale != 1.0:
        submit_s = submit_s[0] + np.floor((submit_s - submit_s[0]) * scale).astype(np.int64)
    asked = tuple(reader.asked)
    limit_s = np.array([-(-int(spec.walltime or 0) // _MILLI) for spec in asked], np.int64)[kind]
    run_s = np.where(limit_s > 0, np.minimum(table[:, 2], limit_s), table[:, 2])
    procs = np.array([_procs(spec) for spec in asked], np.int64)[kind]
    users = tuple(dict.fromkeys(spec.user or _NOBODY for spec in asked))
    accounts = tuple(dict.fromkeys(spec.account for spec in asked))
    queues = tuple(dict.fromkeys(spec.queue for spec in asked))
    user = np.array([users.index(spec.user or _NOBODY) for spec in asked], np.int64)[kind]
    account = np.array([accounts.index(spec.account) for spec in asked], np.int64)[kind]
    queue = np.array([queues.index(spec.queue) for spec in asked], np.int64)[kind]
    jobs = Workload(
        id=table[:, 0], submit_s=submit_s, run_s=run_s, limit_s=limit_s, procs=procs, user=user, skipped={},
        asked=asked, kind=kind,
    )  # fmt: skip
    none = np.zeros(0, np.int64)
    log = Log(name, {}, LogRows(*[none] * 10), (), 0)
    return log, jobs, Population(queues, accounts, users, queue, account, user)


def _procs(spec: JobSpec) -> int:
    """Whole cores of all its nodes; one at least."""
    parts = [(group.request, group.nodes) for group in spec.groups] or [(spec.request, spec.nodes)]
    return max(sum(-(-request.get("cpu", 0) // _MILLI) * nodes for request, nodes in parts), 1)


class _Reader:
    """Reads lines; jobs that ask for the same are one kind."""

    def __init__(self, name: str) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        """Number of the line, submit and run in seconds, kind."""
        self.asked: list[JobSpec] = []
        self._name = name
        self._kinds: dict[str, int] = {}

    def read(self, number: int, line: bytes) -> None:
        """Read one line. Raises SpecError."""
        if len(self.rows) >= MAX_JOBS:
            raise SpecError(f"{self._name}: more than {MAX_JOBS:,} jobs", hint="split it")
        try:
            raw = json.loads(line)
            if not isinstance(raw, dict):
                raise SpecError("not an object", hint='like {"submit": 0, "run": "1h", "gpus": "a100:2"}')
            submit_s, run_s = (self._seconds(raw.pop(key, None), key) for key in TIMES)
            if not run_s:
                raise SpecError("run: it runs for no time", hint="1s at least")
            self.rows.append((number, submit_s, run_s, self._kind(raw)))
        except (ValueError, RecursionError) as error:
            raise SpecError(
                f"{self._name}, line {number}: not JSON: {error}",
                hint="with --cluster a job is a line of JSON; a log in the Standard Workload Format needs --topology",
            ) from None
        except SpecError as error:
            raise SpecError(f"{self._name}, line {number}: {error.message}", hint=error.hint) from error

    @staticmethod
    def _seconds(value: Any, key: str) -> int:
        from hal.core.model import parse_duration
        from hal.daemons.twin.swf import MAX_SUBMIT_S

        if value is None:
            raise SpecError(f"{key}: missing", hint="seconds, or a duration like 1h30m")
        whole_ms = int(parse_duration(value, field=key) or 0)
        if not 0 <= whole_ms <= MAX_SUBMIT_S * _MILLI:
            raise SpecError(f"{key}: {shown(value)} is out of range", hint=f"at most {MAX_SUBMIT_S} seconds")
        return -(-whole_ms // _MILLI)

    def _kind(self, raw: dict[str, Any]) -> int:
        from hal.client.specs import spec_from_options

        key = json.dumps(raw, sort_keys=True)
        found = self._kinds.get(key)
        if found is None:
            for name in NOT_PLAYED:
                if name in raw:
                    raise SpecError(f"{name}: not simulated", hint="give each task a line of its own, without it")
            spec = spec_from_options(["true"], raw, environ={}, workdir="/")  # type: ignore[arg-type]
            if spec.extensions and spec.within:
                raise SpecError("within: not simulated beside extensions", hint="leave out one of them")
            found = self._kinds[key] = len(self.asked)
            self.asked.append(spec)
        return found
