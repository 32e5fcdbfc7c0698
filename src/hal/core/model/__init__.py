"""The frozen values that all of HAL uses: ids, units, resources, job, node, event, verdict.

Pure. Import names from here. Reading specs from text (`specs_from_text`) loads its parsers on first use.
"""

from typing import TYPE_CHECKING, Any

from hal.core.model.codec import (
    convert,
    dec_hook,
    enc_hook,
    from_json,
    parse_constraint,
    parse_licences,
    schema_hook,
    spec_from_plain,
    spec_schema,
    to_json,
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
from hal.core.model.ids import AttemptId, StepId, parse_attempt_id, parse_task_ref
from hal.core.model.job import (
    ArrayRange,
    Constraint,
    JobSpec,
    LimitSignal,
    OnNodeLost,
    OpenMode,
    Operator,
    Retries,
    check_spec,
)
from hal.core.model.node import Allocation, Node
from hal.core.model.resources import Resources
from hal.core.model.states import AttemptState, NodeState, TaskState
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
from hal.core.model.verdict import Findings, Outlook, Reason, Sooner, Verdict

if TYPE_CHECKING:
    from hal.core.model.text import plain_from_text, specs_from_text

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
    "Duration",
    "Event",
    "EventKind",
    "Failed",
    "Findings",
    "GatePhase",
    "GatePolicy",
    "HALError",
    "InternalError",
    "JobGate",
    "JobSpec",
    "LimitSignal",
    "Node",
    "NodeState",
    "NotFoundError",
    "OnNodeLost",
    "OpenMode",
    "Operator",
    "Outlook",
    "OverloadedError",
    "Reason",
    "Resources",
    "Retries",
    "Sooner",
    "SpecError",
    "StepId",
    "StoreError",
    "TaskState",
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
    "plain_from_text",
    "plural",
    "readable_amount",
    "resource_name",
    "schema_hook",
    "shown",
    "spec_from_plain",
    "spec_schema",
    "specs_from_text",
    "to_json",
    "to_plain",
]


def __getattr__(name: str) -> Any:
    if name in ("plain_from_text", "specs_from_text"):
        from hal.core.model import text

        return getattr(text, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
