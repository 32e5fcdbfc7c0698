"""Task management: submission, lifecycle, dependencies, queues. Daemons import names from here only."""

from hal.planes.tasks.admission.policy_effects import Effects, Judge
from hal.planes.tasks.admission.policy_rules import MAX_JOBS_IN_SUBMISSION, LimitsByOwner, admitted
from hal.planes.tasks.admission.submission import UnknownJobs
from hal.planes.tasks.engine.booking_times import BookingTimes
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs.requeues import EndedTask, EndedTasks
from hal.planes.tasks.jobs.updates import JobPatch
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.node import reason_of, without_jobs
from hal.planes.tasks.live.standings import EndedJob
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.planes.tasks.nodes.closures import Drain
from hal.planes.tasks.plane import TaskPlane
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work, emptied
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.checks import check_table
from hal.planes.tasks.table.draft import Change
from hal.planes.tasks.table.orders import Orders
from hal.planes.tasks.table.rows import job_row
from hal.planes.tasks.table.table import STEP_SECRET

__all__ = [
    "CHEAP_A_SLICE",
    "MAX_JOBS_IN_SUBMISSION",
    "STEP_SECRET",
    "Arrival",
    "Attempt",
    "BookingTimes",
    "Change",
    "Drain",
    "Effects",
    "EndedJob",
    "EndedTask",
    "EndedTasks",
    "EngineView",
    "JobPatch",
    "Judge",
    "LimitsByOwner",
    "LiveJob",
    "Orders",
    "Pace",
    "Submitter",
    "TaskPlane",
    "UnknownJobs",
    "Work",
    "admitted",
    "check_table",
    "emptied",
    "job_row",
    "reason_of",
    "without_jobs",
]
