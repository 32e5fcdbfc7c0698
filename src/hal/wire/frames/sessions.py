"""Tasks of a session: between a client and a broker, and between a broker and the workers in the session's slots.

Values only. Clients and workers dial the broker; each begins with `OpenSession`. A client sends tasks by the block: all
tasks of a block share function and options, and have consecutive ids of the client's own. Whoever sends several tasks,
or several results, puts their bytes one behind the other in `payload`, and the length of each in `sizes`: unsigned, 4
bytes each, little-endian. What the bytes mean is agreed between client and worker; a broker never looks into them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.wire.bounds import Count, Name, Pid, Text, Version
from hal.wire.frames.conversation import MAX_FRAME_BYTES, Conversation, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.roles import Role

MAX_BLOCK_TASKS: Final = 4_096
"""Tasks of one block."""
MAX_INLINE_BYTES: Final = 1 << 20
"""Of one task, one result or one piece of an object; more travels by reference."""
MAX_PAYLOAD_BYTES: Final = MAX_FRAME_BYTES - (1 << 16)
"""Of all tasks of a frame."""
MAX_NEEDS: Final = 1_000
"""Objects that a block names."""
MAX_CANCELLED: Final = 4_096
"""Ranges in one `CancelTasks`."""
SIZE_BYTES: Final = 4
"""Of each number in `sizes`."""
MAX_ATTEMPTS: Final = 100
"""Of one task."""
MAX_PRIORITY: Final = 1_000
LATENCY_STEPS: Final = 24
"""Of the histogram of latencies; each step is twice as long."""
MAX_SLOTS_TOLD: Final = 4_096
RATE_STEPS: Final = 60
"""Steps of time for which a broker knows how many tasks were reported."""
MAX_GROUPS_TOLD: Final = 200
"""Functions, and tags, that are counted by themselves."""
MAX_TAGS: Final = 8
"""Of one task."""
MAX_TAG: Final = 64
"""Characters of a tag."""
MAX_KEY: Final = 128
"""Characters of a key."""
MAX_SHAPES: Final = 16
"""Of the slots of a session."""
MAX_THREADS: Final = 256
"""Of one worker that run tasks."""
MAX_FAILURES: Final = 1_000
"""Failures that a broker keeps: the newest."""
MAX_DEATH: Final = 1 << 14
"""Characters of how a worker ended."""
SLOT_RETIRED: Final = "slot-retired"
"""Code of the goodbye to a worker that is to give its place back."""
SESSION_PAUSES: Final = "session-pauses"
"""Code of the goodbye of a durable session's broker that was stopped: another one may take its place."""
CLIENT_REPLACED: Final = "client-replaced"
"""Code of the goodbye to a client of a durable session when another process has come with its key."""
SHARD_CLOSED: Final = "shard-closed"
"""Of a goodbye: this broker ends; the session's others may go on."""
SESSION_CLOSED: Final = "session-closed"
"""Code of the goodbye with which a broker ends a session: whoever receives it does not dial again."""

Sizes = Annotated[bytes, Meta(max_length=MAX_BLOCK_TASKS * SIZE_BYTES)]
Statuses = Annotated[bytes, Meta(max_length=MAX_BLOCK_TASKS)]
Payload = Annotated[bytes, Meta(max_length=MAX_PAYLOAD_BYTES)]
Piece = Annotated[bytes, Meta(max_length=MAX_INLINE_BYTES)]
Index = Annotated[int, Meta(ge=0, le=MAX_BLOCK_TASKS)]
FileName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+\Z")]
Needs = Annotated[tuple[Count, ...], Meta(max_length=MAX_NEEDS)]
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Range = tuple[Count, Count]
Tag = Annotated[str, Meta(min_length=1, max_length=MAX_TAG)]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=MAX_TAGS)]
Key = Annotated[str, Meta(max_length=MAX_KEY)]
Shape = Annotated[str, Meta(max_length=32, pattern=r"^[a-z0-9-]*\Z")]
Death = Annotated[str, Meta(max_length=MAX_DEATH)]
Rates = Annotated[tuple[Count, ...], Meta(max_length=RATE_STEPS)]


class TaskStatus(IntEnum):
    """How a task ended; one byte of `statuses` each."""

    DONE = 0
    """The payload has its result."""
    FAILED = 1
    """It raised an exception, which is in the payload."""
    LOST = 2
    """Its worker ended while it ran, and it may not run again; the payload has the reason as text."""
    QUARANTINED = 3
    """Several workers ended while it ran; the payload has the reason as text."""
    CANCELLED = 4
    """It never began."""
    TIMED_OUT = 5
    """It ran for longer than it may, and was ended with its worker; the payload has the reason as text."""


class OpenSession(Frame, frozen=True, kw_only=True):
    """The first frame of a client and of a worker. The answer is `SessionOpened`."""

    versions: tuple[Version, Version]
    """Lowest and highest wire version that it supports."""
    role: Role
    """`client` or `worker`."""
    session: Name
    """Id of the session."""
    token: Name
    """The session's own."""
    name: Name = ""
    """Of the process, for people."""
    pid: Pid = 0
    client: Name = ""
    """Of a client of a durable session: a key of its own, with which it comes back."""
    worker: Count = 0
    """Of a client that is a worker's, for tasks that its tasks submit: the worker's number."""
    files: bool = False
    """Over this connection only payloads over 1 MiB travel: `AskFile`, `FilePiece`, `DropFiles`."""
    task: Count = 0
    """Of a worker: the task of the session's job that it is. Those with the highest numbers are retired first."""
    shape: Shape = ""
    """Of a worker: the shape of its slot; empty: that of the session itself."""
    first: Count = 0
    """Of a worker with several threads, each of which has a connection of its own: the number that the first of them
    was given; 0: this is the first."""
    former: Count = 0
    """Of a worker that replaces one that died: the number of that one; 0: it replaces none."""
    death: Death = ""
    """How that one ended; what it has written behind it in further lines."""
    replaced: bool = False
    """Of a worker: when it dies, another one comes in its place, and says how it ended."""


class SessionOpened(Frame, frozen=True, kw_only=True):
    """The answer to `OpenSession`."""

    version: Version
    """The wire version that both sides use from now on."""
    number: Count
    """Of this client, or of this worker, in the session; ids of the client's objects begin with it: they are
    `number` times 2^32 and something."""
    window_tasks: Count
    """A client may have so many tasks unanswered."""
    window_bytes: Count
    """And so many bytes of them."""
    directory: Text = ""
    """Where payloads over 1 MiB are exchanged as files, on the broker's node; empty: nowhere."""
    place: Text = ""
    """What the file `broker.lock` there says: who reads this there is on the broker's machine. Others ask for
    them and send them over connections of their own (`files`)."""


class AskFile(Frame, frozen=True, kw_only=True):
    """To the broker: send a payload. The answer is a `FilePiece` for each of its pieces, or a `FileStored` with what
    went wrong."""

    name: FileName


class FilePiece(Frame, frozen=True, kw_only=True):
    """The next piece of a payload over 1 MiB, in either direction. The answer to the last one that a broker gets is a
    `FileStored`."""

    name: FileName
    size: Count
    """Of the whole payload, in bytes."""
    data: Piece
    more: bool = False
    """More pieces follow."""


class FileStored(Frame, frozen=True, kw_only=True):
    """From the broker: it has the whole payload, or something went wrong."""

    error: Text = ""


class DropFiles(Frame, frozen=True, kw_only=True):
    """To the broker: nobody needs these payloads any more."""

    names: Annotated[tuple[FileName, ...], Meta(max_length=MAX_NEEDS)]


class StoreObject(Frame, frozen=True, kw_only=True):
    """A function, or a value that tasks share; the broker passes it on to the workers whose tasks need it."""

    ref: Count
    """Its id; a later object with the same id replaces it."""
    data: Piece
    """The next piece of it."""
    more: bool = False
    """More pieces follow."""
    name: Name = ""
    """Of a function, for people; in its first piece."""


class DropObjects(Frame, frozen=True, kw_only=True):
    """These objects are not used any more."""

    refs: Needs


class SubmitTasks(Frame, frozen=True, kw_only=True):
    """A block of tasks. Each is answered once, in a `TaskResults`."""

    first: Count
    """Id of the first task; the others follow."""
    function: Count
    """The object that they call."""
    sizes: Sizes
    payload: Payload
    """Their arguments."""
    needs: Needs = ()
    """Other objects that they use."""
    priority: Priority = 0
    """Tasks of a higher priority of the same client begin first."""
    attempts: Attempts = 1
    """How often a task may run until it raises no exception."""
    once: bool = False
    """A task whose worker is lost after it may have begun is not run again."""
    timeout_ms: Count = 0
    """How long each may run; 0: as long as it takes."""
    depth: Count = 0
    """Of tasks that a task submits: how many tasks are above them. Deeper ones begin first, the newest first."""
    tags: Tags = ()
    """By which people tell tasks apart; numbers and failures have them."""
    shape: Shape = ""
    """Of the slots in which they may run."""
    key: Key = ""
    """Tasks of one key run one by one, in the same worker as long as it is there; empty: in any."""


class TasksReceived(Frame, frozen=True, kw_only=True):
    """All blocks sent so far were received; sent about 1 ms after one to which no result was sent meanwhile."""


class TaskResults(Frame, frozen=True, kw_only=True):
    """How consecutive tasks of a block ended."""

    block: Count
    """Id of the block's first task."""
    index: Index
    """Of the first of these tasks in its block."""
    statuses: Statuses
    """A `TaskStatus` for each."""
    sizes: Sizes
    payload: Payload


class CancelTasks(Frame, frozen=True, kw_only=True):
    """End tasks that have not begun; they are answered as cancelled. The answer is `TasksCancelled`, after these."""

    ranges: Annotated[tuple[Range, ...], Meta(max_length=MAX_CANCELLED)]
    """Id of the first task, and how many, within one block."""


class TasksCancelled(Frame, frozen=True, kw_only=True):
    """A `CancelTasks` was carried out."""


class KeptTasks(Frame, frozen=True, kw_only=True):
    """After `SessionOpened`, to a client of a durable session: its tasks whose results it has not acknowledged. Results
    that are there follow."""

    tasks: Annotated[tuple[tuple[Count, Index, Index], ...], Meta(max_length=MAX_CANCELLED)]
    """Block, index of the first, number."""
    more: bool
    """Another such frame follows."""
    next_task: Count
    """New tasks have this id, or higher ones."""
    next_object: Count
    """So do new objects, without the client's number."""


class AcknowledgeResults(Frame, frozen=True, kw_only=True):
    """From a client of a durable session: it has these results; they are not kept any more."""

    results: Annotated[tuple[tuple[Count, Index], ...], Meta(max_length=MAX_CANCELLED)]
    """Block and index of each `TaskResults`."""


class RunTasks(Frame, frozen=True, kw_only=True):
    """To a worker: run these, in this order."""

    run: Count
    """Its number."""
    function: Count
    sizes: Sizes
    payload: Payload
    timeout_ms: Count = 0
    depth: Count = 0
    key: Key = ""
    """Of all of them."""
    fresh: bool = False
    """The worker keeps no state of that key."""


class TaskWaits(Frame, frozen=True, kw_only=True):
    """From a worker: the task of a run that it has begun waits for other tasks; the worker runs others meanwhile."""

    run: Count


class TaskGoesOn(Frame, frozen=True, kw_only=True):
    """From a worker: the task goes on."""

    run: Count


class TasksDone(Frame, frozen=True, kw_only=True):
    """From a worker: consecutive tasks of a run ended."""

    run: Count
    index: Index
    """Of the first of them; tasks of a run end in order."""
    statuses: Statuses
    sizes: Sizes
    payload: Payload
    took_us: Count
    """How long all of them took."""


class RecallTasks(Frame, frozen=True, kw_only=True):
    """To a worker: return what it has not begun. The answer is a `TasksReturned` for each of its runs of which tasks
    are returned, and one for run 0 at the end."""


class TasksReturned(Frame, frozen=True, kw_only=True):
    """From a worker: it will not run the tasks of a run from this one on."""

    run: Count
    index: Index


class LeaveSlot(Frame, frozen=True, kw_only=True):
    """From a worker that was told to leave: it is sent nothing more, gives back what it has not begun, and gets a
    goodbye with the code `slot-retired` when it has reported the rest."""


class EndSession(Frame, frozen=True, kw_only=True):
    """From a client: the session is over. The broker says goodbye to everybody, and ends."""


class AskNumbers(Frame, frozen=True, kw_only=True):
    """From a client: how does the session go? The answer is `SessionNumbers`."""

    slots: bool = False
    """Numbers of each slot, function and tag, and those over time, too."""


class AskFailures(Frame, frozen=True, kw_only=True):
    """From a client: which tasks failed? The answer is `SessionFailures`."""

    tag: Name = ""
    """Only tasks with this tag; empty: all."""
    function: Name = ""
    """Only those of this function, with or without its module."""


class TaskFailure(Struct, frozen=True, kw_only=True, array_like=True):
    """A task that has no result, and was not cancelled."""

    task: Count
    """Its id, which its client has given it."""
    client: Count
    function: Name
    tags: Tags
    status: TaskStatus
    attempts: Count
    """How often it has begun, as far as that is known."""
    worker: Name
    slot: Count
    """The task of the session's job that its last worker is."""
    ago_ms: Count
    """When it failed, before now."""
    payload: Piece
    """As in `TaskResults`."""


class SessionFailures(Frame, frozen=True, kw_only=True):
    """The answer to `AskFailures`."""

    failures: Annotated[tuple[TaskFailure, ...], Meta(max_length=MAX_FAILURES)]
    """The newest first; of those that the broker keeps."""
    ever: Count
    """How many tasks have failed, asked for or not, kept or not."""


class GroupNumbers(Struct, frozen=True, kw_only=True, array_like=True):
    """Tasks of one function, or with one tag."""

    name: Name
    done: Count
    failed: Count
    retried: Count
    """How often one of them failed and ran again."""
    busy_us: Count
    """How long they took."""


Groups = Annotated[tuple[GroupNumbers, ...], Meta(max_length=MAX_GROUPS_TOLD)]


class SlotNumbers(Struct, frozen=True, kw_only=True, array_like=True):
    """What a broker knows of a slot."""

    name: Name
    task: Count
    """Of the session's job, that the worker is."""
    held: Count
    """Tasks that it has and has not reported."""
    done: Count
    busy_us: Count
    """How long its tasks took."""
    since_ms: Count
    """How long it has been there."""
    silent_ms: Count
    """For how long it has reported nothing although it has tasks."""
    running: Name = ""
    """The function of the task that it runs."""
    tags: Tags = ()
    """Of that task."""
    shape: Shape = ""
    """Of the slot."""


class ShapeNumbers(Struct, frozen=True, kw_only=True, array_like=True):
    """What a broker knows of the slots of one shape."""

    shape: Shape
    wanted: Count
    """How many slots would have something to run, or keep what belongs to a key."""
    slots: Count
    """How many there are."""


class SessionNumbers(Frame, frozen=True, kw_only=True):
    """The answer to `AskNumbers`."""

    uptime_ms: Count
    clients: Count
    waiting: Count
    """Tasks that no slot has."""
    unanswered: Count
    """Tasks that have not ended, those included."""
    done: Count
    """Tasks that slots have reported."""
    busy: Count
    """Slots that have a task."""
    slots: Count
    latencies: Annotated[tuple[Count, ...], Meta(max_length=LATENCY_STEPS)]
    """Tasks answered in less than 1 ms, 2 ms, 4 ms and so on after their block came; the last: later."""
    latency_ms: Count = 0
    """The sum of the latencies of all these."""
    ended: Annotated[tuple[Count, ...], Meta(max_length=len(TaskStatus))] = ()
    """Tasks by how they ended, in the order of `TaskStatus`."""
    retried: Count = 0
    """How often a task failed that ran again."""
    lost_workers: Count = 0
    """How often a worker ended while it had tasks."""
    each: Annotated[tuple[SlotNumbers, ...], Meta(max_length=MAX_SLOTS_TOLD)] = ()
    functions: Groups = ()
    tags: Groups = ()
    seconds: Rates = ()
    """Tasks reported in each of the last seconds, the present one last."""
    minutes: Rates = ()
    """And minutes."""
    shapes: Annotated[tuple[ShapeNumbers, ...], Meta(max_length=MAX_SHAPES)] = ()


class RetireSlots(Frame, frozen=True, kw_only=True):
    """From a client: keep so many slots of a shape. Of the others those that have no task are told to leave: the worker
    gets a goodbye with the code `slot-retired`."""

    keep: Count
    shape: Shape = ""
    """Of the slots that this is about."""


class MoveSlots(Frame, frozen=True, kw_only=True):
    """From a client of a session with several brokers: so many slots of a shape, of those that have no task, are to go
    to another one."""

    count: Count
    shard: Count
    """The number of that broker."""
    shape: Shape = ""
    """Of the slots that this is about."""


class MoveSlot(Frame, frozen=True, kw_only=True):
    """To a worker: dial another broker of the session; nothing more comes over this connection."""

    shard: Count


SessionFrame = (
    OpenSession
    | SessionOpened
    | AskFile
    | FilePiece
    | FileStored
    | DropFiles
    | StoreObject
    | DropObjects
    | SubmitTasks
    | TasksReceived
    | TaskResults
    | CancelTasks
    | TasksCancelled
    | KeptTasks
    | AcknowledgeResults
    | RunTasks
    | TaskWaits
    | TaskGoesOn
    | TasksDone
    | RecallTasks
    | TasksReturned
    | LeaveSlot
    | EndSession
    | AskNumbers
    | SessionNumbers
    | AskFailures
    | SessionFailures
    | RetireSlots
    | MoveSlots
    | MoveSlot
    | Goodbye
)
"""What a broker, its clients and its workers may send each other."""
SESSIONS: Final[Conversation[SessionFrame]] = Conversation("sessions", Role.BROKER, SessionFrame)
"""Clients and workers to a broker, and back."""
