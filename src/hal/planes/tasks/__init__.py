"""Task management: submission, lifecycle, dependencies, queues. Daemons import names from here only."""

from hal.planes.tasks.admission.levels import check_level, unpacked
from hal.planes.tasks.admission.never import NeverStartsError
from hal.planes.tasks.admission.policy_effects import Effects, Judge
from hal.planes.tasks.admission.policy_rules import MAX_JOBS_IN_SUBMISSION, LimitsByOwner, admitted
from hal.planes.tasks.admission.whole_nodes import with_whole_nodes
from hal.planes.tasks.dependencies.resolution import UnknownJobs
from hal.planes.tasks.engine.booking_times import BookingTimes
from hal.planes.tasks.engine.interning import Interning
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs.job_graph import JobGraph, graph_of
from hal.planes.tasks.jobs.patches import FieldChange, JobPatch, patch_of
from hal.planes.tasks.jobs.placement import Placement
from hal.planes.tasks.jobs.requeues import EndedTask, EndedTasks
from hal.planes.tasks.jobs.selection import WHOLE, Done, Selection, named_pieces, no_task_of
from hal.planes.tasks.jobs.taken_tasks import TakenTasks
from hal.planes.tasks.jobs.updates import Updated
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.figures import GroupFigures
from hal.planes.tasks.live.gpu_book import GpuBook
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import node_spec, reason_of, without_jobs
from hal.planes.tasks.live.standings import EndedJob
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.planes.tasks.nodes.closures import Drain
from hal.planes.tasks.plane import TaskPlane
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work, emptied, finished
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.checks import check_table
from hal.planes.tasks.table.draft import Change
from hal.planes.tasks.table.group_figures import LiveTally
from hal.planes.tasks.table.orders import NodesNow, Orders
from hal.planes.tasks.table.rows import job_row
from hal.planes.tasks.table.table import STEP_SECRET

__all__ = [
    "CHEAP_A_SLICE",
    "MAX_JOBS_IN_SUBMISSION",
    "STEP_SECRET",
    "WHOLE",
    "Arrival",
    "Attempt",
    "BookingTimes",
    "Change",
    "Done",
    "Drain",
    "Effects",
    "EndedJob",
    "EndedTask",
    "EndedTasks",
    "EngineView",
    "FieldChange",
    "GpuBook",
    "GroupFigures",
    "Interning",
    "JobGraph",
    "JobPatch",
    "Judge",
    "LimitsByOwner",
    "LiveJob",
    "LiveTally",
    "NeverStartsError",
    "NodesNow",
    "Orders",
    "Pace",
    "Placement",
    "Selection",
    "Submitter",
    "TakenTasks",
    "TaskPlane",
    "UnknownJobs",
    "Updated",
    "Work",
    "admitted",
    "check_level",
    "check_table",
    "emptied",
    "finished",
    "graph_of",
    "job_row",
    "named_pieces",
    "no_task_of",
    "node_spec",
    "patch_of",
    "reason_of",
    "unpacked",
    "with_whole_nodes",
    "without_jobs",
]
