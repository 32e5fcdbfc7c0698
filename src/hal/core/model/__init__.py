"""The frozen values that all of HAL uses: ids, units, resources, job, node, event, verdict.

Pure. Import names from here; the module that defines one is loaded when the name is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal.core.model.array import ArrayRange
    from hal.core.model.codec import (
        convert,
        from_json,
        parse_constraint,
        parse_licences,
        schema_hook,
        spec_from_plain,
        spec_schema,
        to_plain,
    )
    from hal.core.model.dependency import (
        Dependency,
        DependencyKind,
        Failed,
        dependencies_text,
        each_dependency,
        parse_dependencies,
    )
    from hal.core.model.errors import (
        ConflictError,
        DeniedError,
        HALError,
        InternalError,
        NotFoundError,
        OverloadedError,
        SpecError,
        StoreError,
        TimedOutError,
        UnreachableError,
        error_from_code,
        one_line,
        shown,
    )
    from hal.core.model.event import Event, EventKind
    from hal.core.model.gate import GatePhase, GatePolicy, JobGate
    from hal.core.model.ids import AttemptId, StepId, TasksRef, parse_attempt_id, parse_task_ref, parse_tasks_ref
    from hal.core.model.job import (
        Constraint,
        Dialect,
        Interactive,
        JobSpec,
        LimitSignal,
        OnHangup,
        OnNodeLost,
        OpenMode,
        Operator,
        Retries,
        check_spec,
    )
    from hal.core.model.json_values import dec_hook, enc_hook, to_json
    from hal.core.model.node import Allocation, Node
    from hal.core.model.resources import Resources
    from hal.core.model.service import Readiness, Restart, Service
    from hal.core.model.states import AttemptState, NodeState, TaskState
    from hal.core.model.text import plain_from_text, specs_from_text
    from hal.core.model.units import (
        Duration,
        format_amount,
        format_distinctly,
        format_duration,
        format_size,
        parse_amount,
        parse_duration,
        parse_size,
        plural,
        readable_amount,
        resource_name,
    )
    from hal.core.model.verdict import Findings, Forecast, Never, Outlook, Reason, Sooner, Verdict, short_reason

_HOMES = {
    "array": ("ArrayRange",),
    "codec": (
        "convert",
        "from_json",
        "parse_constraint",
        "parse_licences",
        "schema_hook",
        "spec_from_plain",
        "spec_schema",
        "to_plain",
    ),
    "dependency": (
        "Dependency",
        "DependencyKind",
        "Failed",
        "dependencies_text",
        "each_dependency",
        "parse_dependencies",
    ),
    "errors": (
        "ConflictError",
        "DeniedError",
        "HALError",
        "InternalError",
        "NotFoundError",
        "OverloadedError",
        "SpecError",
        "StoreError",
        "TimedOutError",
        "UnreachableError",
        "error_from_code",
        "one_line",
        "shown",
    ),
    "event": (
        "Event",
        "EventKind",
    ),
    "gate": (
        "GatePhase",
        "GatePolicy",
        "JobGate",
    ),
    "ids": (
        "AttemptId",
        "StepId",
        "TasksRef",
        "parse_attempt_id",
        "parse_task_ref",
        "parse_tasks_ref",
    ),
    "job": (
        "Constraint",
        "Dialect",
        "Interactive",
        "JobSpec",
        "LimitSignal",
        "OnHangup",
        "OnNodeLost",
        "OpenMode",
        "Operator",
        "Retries",
        "check_spec",
    ),
    "json_values": ("dec_hook", "enc_hook", "to_json"),
    "node": (
        "Allocation",
        "Node",
    ),
    "resources": ("Resources",),
    "service": ("Readiness", "Restart", "Service"),
    "states": (
        "AttemptState",
        "NodeState",
        "TaskState",
    ),
    "text": (
        "plain_from_text",
        "specs_from_text",
    ),
    "units": (
        "Duration",
        "format_amount",
        "format_distinctly",
        "format_duration",
        "format_size",
        "parse_amount",
        "parse_duration",
        "parse_size",
        "plural",
        "readable_amount",
        "resource_name",
    ),
    "verdict": (
        "Findings",
        "Forecast",
        "Never",
        "Outlook",
        "Reason",
        "Sooner",
        "Verdict",
        "short_reason",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Allocation",
    "ArrayRange",
    "AttemptId",
    "AttemptState",
    "ConflictError",
    "Constraint",
    "DeniedError",
    "Dependency",
    "DependencyKind",
    "Dialect",
    "Duration",
    "Event",
    "EventKind",
    "Failed",
    "Findings",
    "Forecast",
    "GatePhase",
    "GatePolicy",
    "HALError",
    "Interactive",
    "InternalError",
    "JobGate",
    "JobSpec",
    "LimitSignal",
    "Never",
    "Node",
    "NodeState",
    "NotFoundError",
    "OnHangup",
    "OnNodeLost",
    "OpenMode",
    "Operator",
    "Outlook",
    "OverloadedError",
    "Readiness",
    "Reason",
    "Resources",
    "Restart",
    "Retries",
    "Service",
    "Sooner",
    "SpecError",
    "StepId",
    "StoreError",
    "TaskState",
    "TasksRef",
    "TimedOutError",
    "UnreachableError",
    "Verdict",
    "check_spec",
    "convert",
    "dec_hook",
    "dependencies_text",
    "each_dependency",
    "enc_hook",
    "error_from_code",
    "format_amount",
    "format_distinctly",
    "format_duration",
    "format_size",
    "from_json",
    "one_line",
    "parse_amount",
    "parse_attempt_id",
    "parse_constraint",
    "parse_dependencies",
    "parse_duration",
    "parse_licences",
    "parse_size",
    "parse_task_ref",
    "parse_tasks_ref",
    "plain_from_text",
    "plural",
    "readable_amount",
    "resource_name",
    "schema_hook",
    "short_reason",
    "shown",
    "spec_from_plain",
    "spec_schema",
    "specs_from_text",
    "to_json",
    "to_plain",
]


if not TYPE_CHECKING:  # the type checker would believe in every name

    def __getattr__(name: str) -> Any:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
