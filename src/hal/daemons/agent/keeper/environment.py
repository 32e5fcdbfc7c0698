"""The variables of a step: the template's, with defaults below them and the HAL_* of the single step above them.

Pure. docs/keeper.md lists them for users.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Final

from hal.core.model.dialects import step_variables
from hal.core.model.path_patterns import expand_path, values_of_step
from hal.core.model.rank_variables import MASTER_ADDR, MASTER_PORT, numbers_of_rank
from hal.core.model.service import port_variable
from hal.core.model.step_token import step_token
from hal.core.model.trace_ids import below_run
from hal.daemons.agent.keeper.ports import KeeperConfig, Streams, output_prefix
from hal.wire.frames.agent_keeper import StepStart, StepTemplate

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
INHERITED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "TZ")
"""Variables that a step gets from the keeper's own environment if its template does not set them."""


LOOPBACK: Final = "127.0.0.1"
"""Where the ranks of one node meet."""
MAX_ENVS: Final = 16
"""Environments that are kept."""


def default_env(environ: Mapping[str, str], *, user: str, home_dir: str) -> dict[str, str]:
    """Build the defaults of every step's variables, from the keeper's own environment."""
    env = {"PATH": DEFAULT_PATH, "HOME": home_dir, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh", "TMPDIR": "/tmp"}
    env.update((name, environ[name]) for name in INHERITED if environ.get(name))
    return env


def user_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the defaults of steps that run as other users; their helpers add what their accounts say."""
    env = {"PATH": USER_PATH, "TMPDIR": "/tmp"}
    env.update((name, environ[name]) for name in ("LANG", "TZ") if environ.get(name))
    return env


def template_env(template: StepTemplate, config: KeeperConfig) -> dict[str, str]:
    """Build the variables of all steps of a template; `step_env` of the single step overrides them."""
    env = {"HAL_USER": template.user or config.user}
    if template.cpu_milli:
        env["HAL_CPUS"] = cores(template.cpu_milli)
        env["OMP_NUM_THREADS"] = str(-(-template.cpu_milli // 1000))  # the job's own, below, goes before
    if template.memory_bytes:
        env["HAL_MEMORY_BYTES"] = str(template.memory_bytes)
    if template.walltime_ms:
        env["HAL_WALLTIME_S"] = str(template.walltime_ms // 1000)
    env.update(template.env)
    env["HAL_HOME"] = config.home
    env["HAL_NODE"] = config.node
    return env


class TemplateEnvs:
    """The complete environments of templates; computed once for the many steps of one frame."""

    def __init__(self, config: KeeperConfig, environ: Mapping[str, str], steps_socket: Callable[[], str]) -> None:
        """Args:
        environ: the keeper's own.
        steps_socket: where steps of other users reach HAL.
        """
        self._config = config
        self._default_env = default_env(environ, user=config.user, home_dir=environ.get("HOME") or "/")
        self._user_env = user_env(environ)
        self._steps_socket = steps_socket
        self._known: dict[int, tuple[StepTemplate, dict[str, str]]] = {}
        """With the template itself, so that its id stays unique."""

    def of(self, template: StepTemplate) -> dict[str, str]:
        """Return that of a template."""
        known = self._known.get(id(template))
        if known is None:
            if len(self._known) >= MAX_ENVS:
                del self._known[next(iter(self._known))]
            env = template_env(template, self._config)
            if self._config.steps_user(template):
                env = self._user_env | env | {"HAL_STEP_SOCKET": self._steps_socket()}
            else:
                env = self._default_env | env
            known = self._known[id(template)] = (template, env)
        return known[1]


def step_env(
    start: StepStart, directory: str, key: str, secrets_dir: str = "", hostfile_dir: str = ""
) -> dict[str, str]:
    """Build the variables of one step alone; `directory` is where its outputs are, `key`, `secrets_dir` and
    `hostfile_dir` are its template's."""
    prefix = f"{directory}/{output_prefix(start.step)}"
    job, task, attempt, rank = start.step.job, start.step.task, start.step.attempt, start.step.rank
    env = {
        "HAL_JOB_ID": str(job),
        "HAL_TASK": str(task),
        "HAL_ATTEMPT": str(attempt),
        "HAL_RESTART": str(attempt - 1),
        "HAL_NODE_RANK": str(rank),
        "HAL_ATTEMPT_TOKEN": start.token,
        "HAL_STEP_TOKEN": step_token(start.token, key) if key else "",
        "HAL_ARRAY_INDEX": str(start.array_index),
        "HAL_ARRAY_COUNT": str(start.array_count),
        "HAL_NODES": ",".join(start.nodes),
        "HAL_NODE_COUNT": str(len(start.nodes)),
        "HAL_STDOUT": f"{prefix}.stdout",
        "HAL_STDERR": f"{prefix}.stderr",
    }
    if start.addresses:
        env["HAL_NODE_ADDRESSES"] = ",".join(start.addresses)
    if start.item:
        env["HAL_ITEM"] = start.item
    if secrets_dir:
        env["HAL_SECRETS_DIR"] = f"{secrets_dir}/{start.step}"
    if hostfile_dir and not rank:
        env["HAL_HOSTFILE"] = f"{hostfile_dir}/{start.step}/hosts"
    return env


def dialect_env(start: StepStart, template: StepTemplate, node: str) -> dict[str, str]:
    """Build the variables of one step that the scheduler for which it was written would set."""
    return step_variables(
        template.dialect,
        template.env,
        job=start.step.job,
        array_index=start.array_index,
        restarts=start.step.attempt - 1,
        rank=start.step.rank,
        nodes=start.nodes,
        node=node,
    )


def streams_of(start: StepStart, template: StepTemplate, node: str) -> Streams | None:
    """Return the files that the job has named for its standard streams, on that node; None if it has named none."""
    if not (template.stdin or template.stdout or template.stderr):
        return None
    values = values_of_step(start.step.task, start.array_index, start.step.attempt, start.step.rank, node)
    return Streams(
        expand_path(template.stdin, values),
        expand_path(template.stdout, values),
        expand_path(template.stderr, values),
        template.append,
    )


def trace_env(start: StepStart, template: StepTemplate) -> dict[str, str]:
    """Build the variable by which what a step does goes on with its job's trace, below the run of its attempt."""
    step = start.step
    below = below_run(template.env["TRACEPARENT"], step.job, step.task, step.attempt)
    return {"TRACEPARENT": below} if below else {}


def port_env(start: StepStart, template: StepTemplate) -> dict[str, str]:
    """Build the variables that say to a step of a service at which ports it serves."""
    if template.service is None or not start.ports:
        return {}
    named = zip(template.service.ports, start.ports, strict=False)
    env = {port_variable(name): str(port) for (name, _), port in named}
    return env if len(env) > 1 else {"HAL_PORT": str(start.ports[0]), **env}


def rank_env(start: StepStart, template: StepTemplate) -> dict[str, str]:
    """Build the variables by which the ranks of a parallel program find one another, but those that the job sets."""
    if not start.master_port:
        return {}
    env = {MASTER_ADDR: start.addresses[0] if start.addresses else LOOPBACK, MASTER_PORT: str(start.master_port)}
    if template.ranks:
        env |= numbers_of_rank(start.step.rank, len(start.nodes), 0, 1)
    return {name: value for name, value in env.items() if name not in template.env}


def stream_env(streams: Streams, workdir: str) -> dict[str, str]:
    """Build the variables that say where its output and its errors go; absolute if it has a work directory."""
    named = {"HAL_STDOUT": streams.stdout, "HAL_STDERR": streams.stderr}
    return {name: os.path.join(workdir, path) for name, path in named.items() if path}


def cores(milli: int) -> str:
    """Format millicores: 2000 is `2`, 500 is `0.5`."""
    whole, part = divmod(milli, 1000)
    return f"{whole}.{part:03d}".rstrip("0").rstrip(".")
