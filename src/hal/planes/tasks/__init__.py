"""Task management: submission, lifecycle, dependencies, queues. Import names from here."""

from hal.planes.tasks.admission import MAX_JOBS_IN_SUBMISSION, admitted
from hal.planes.tasks.closing import reason_of
from hal.planes.tasks.control import EndedTask, EndedTasks, JobPatch
from hal.planes.tasks.dependencies import EndedJob
from hal.planes.tasks.draft import Change, Orders
from hal.planes.tasks.effects import Effects, Judge
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.nodes import Arrival
from hal.planes.tasks.plane import TaskPlane
from hal.planes.tasks.rows import job_row
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work, emptied
from hal.planes.tasks.submission import Submitter, UnknownJobs
from hal.planes.tasks.table import STEP_SECRET, check_table

__all__ = [
    "CHEAP_A_SLICE",
    "MAX_JOBS_IN_SUBMISSION",
    "STEP_SECRET",
    "Arrival",
    "Attempt",
    "Change",
    "Effects",
    "EndedJob",
    "EndedTask",
    "EndedTasks",
    "JobPatch",
    "Judge",
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
]
