"""Task management: submission, lifecycle, dependencies, queues. Import names from here."""

from hal.planes.tasks.admission import DEFAULT_QUEUE, MAX_JOBS_IN_SUBMISSION, Queue, Site
from hal.planes.tasks.control import EndedTask, JobPatch
from hal.planes.tasks.draft import Change, Orders
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.nodes import Arrival
from hal.planes.tasks.plane import TaskPlane
from hal.planes.tasks.rows import job_row
from hal.planes.tasks.submission import EndedJob, Submitter, UnknownJobs
from hal.planes.tasks.table import check_table

__all__ = [
    "DEFAULT_QUEUE",
    "MAX_JOBS_IN_SUBMISSION",
    "Arrival",
    "Attempt",
    "Change",
    "EndedJob",
    "EndedTask",
    "JobPatch",
    "LiveJob",
    "Orders",
    "Queue",
    "Site",
    "Submitter",
    "TaskPlane",
    "UnknownJobs",
    "check_table",
    "job_row",
]
