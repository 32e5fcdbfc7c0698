"""HAL: a scheduler for batch, high-throughput and AI work on any compute a team has.

    import hal

    client = hal.connect()
    job = client.submit(["python", "train.py"], cpus=4, memory="8GiB", walltime="2h")
    job.wait()
    print(job.logs())

Importing this module loads nothing else; a name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to import than everything else here
if TYPE_CHECKING:
    from typing import Any

    from hal.client.async_client import AsyncClient
    from hal.client.async_job import AsyncJob
    from hal.client.connect import aconnect, connect
    from hal.client.job import Job
    from hal.client.rest.outcome import JobFailedError
    from hal.client.rest.views import AttemptInfo, EventInfo, JobInfo, NodeInfo, QueueInfo, TaskInfo, WhyInfo
    from hal.client.specs import JobOptions
    from hal.client.sync_client import Client
    from hal.core.model import (
        ArrayRange,
        ConflictError,
        Constraint,
        DeniedError,
        Dependency,
        HALError,
        InternalError,
        JobSpec,
        LimitSignal,
        NodeState,
        NotFoundError,
        OverloadedError,
        Resources,
        Retries,
        SpecError,
        StoreError,
        TaskState,
        TimedOutError,
        UnreachableError,
    )

__version__ = "0.1.0"

_HOMES = {
    "hal.client.async_client": ("AsyncClient",),
    "hal.client.async_job": ("AsyncJob",),
    "hal.client.connect": ("aconnect", "connect"),
    "hal.client.rest.outcome": ("JobFailedError",),
    "hal.client.job": ("Job",),
    "hal.client.specs": ("JobOptions",),
    "hal.client.sync_client": ("Client",),
    "hal.client.rest.views": ("AttemptInfo", "EventInfo", "JobInfo", "NodeInfo", "QueueInfo", "TaskInfo", "WhyInfo"),
    "hal.core.model": (
        "ArrayRange",
        "ConflictError",
        "Constraint",
        "DeniedError",
        "Dependency",
        "HALError",
        "InternalError",
        "JobSpec",
        "LimitSignal",
        "NodeState",
        "NotFoundError",
        "OverloadedError",
        "Resources",
        "Retries",
        "SpecError",
        "StoreError",
        "TaskState",
        "TimedOutError",
        "UnreachableError",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrayRange",
    "AsyncClient",
    "AsyncJob",
    "AttemptInfo",
    "Client",
    "ConflictError",
    "Constraint",
    "DeniedError",
    "Dependency",
    "EventInfo",
    "HALError",
    "InternalError",
    "Job",
    "JobFailedError",
    "JobInfo",
    "JobOptions",
    "JobSpec",
    "LimitSignal",
    "NodeInfo",
    "NodeState",
    "NotFoundError",
    "OverloadedError",
    "QueueInfo",
    "Resources",
    "Retries",
    "SpecError",
    "StoreError",
    "TaskInfo",
    "TaskState",
    "TimedOutError",
    "UnreachableError",
    "WhyInfo",
    "__version__",
    "aconnect",
    "connect",
]


if not TYPE_CHECKING:  # the type checker would believe in every name

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'hal' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
