"""What is said of a job, to whom: messages from its row, and from what was told before.

Pure. A message never contains the command, the environment, or anything else that a job may keep secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from hal.core.model import TaskState, one_line, plural, to_json
from hal.core.model.notification import ENDS, Kind, Moment, Notification
from hal.core.model.units import format_duration
from hal.store import JobRow, NoticeRow
from hal.store.ended_attempts import EndedAttempt

MAX_TEXT_CHARS: Final = 500
"""Of a reason in a message."""

_OF_STATE: Final = {
    TaskState.SUCCEEDED: Moment.SUCCEEDED,
    TaskState.FAILED: Moment.FAILED,
    TaskState.TIMED_OUT: Moment.TIMED_OUT,
    TaskState.CANCELLED: Moment.CANCELLED,
}
_WORDS: Final = {Moment.RUNNING: "started", Moment.REQUEUED: "was requeued", Moment.TIMED_OUT: "timed out"} | {
    Moment.SUCCEEDED: "succeeded",
    Moment.FAILED: "failed",
    Moment.CANCELLED: "was cancelled",
}
_OF_ATTEMPT: Final = {one.value: one for one in ENDS}


class Message(NamedTuple):
    """One message to one target."""

    job: int
    user: str
    kind: Kind
    target: str
    id: str
    """Unique and the same whenever this is told again: receivers can leave out what they have."""
    subject: str
    text: str
    body: bytes
    """JSON, for a webhook."""


def told_of(row: JobRow, ended_seq: int) -> NoticeRow:
    """What has been told when all messages of this row were sent."""
    return NoticeRow(row.id, row.end_ms is None, row.start_ms, row.end_ms, row.restarts, ended_seq)


def moments_since(row: JobRow, before: NoticeRow) -> list[Moment]:
    """What happened to the job since something was told."""
    found = []
    lives_again = before.end_ms is not None and row.end_ms != before.end_ms
    if lives_again or (row.tasks == 1 and row.restarts > before.restarts):
        found.append(Moment.REQUEUED)
    if row.start_ms is not None and row.start_ms != before.start_ms:
        found.append(Moment.RUNNING)
    if row.end_ms is not None and row.end_ms != before.end_ms and row.state in _OF_STATE:
        found.append(_OF_STATE[row.state])
    return found


def messages_of(row: JobRow, before: NoticeRow, attempts: Sequence[EndedAttempt], instance: str) -> Iterator[Message]:
    """Messages about what happened since something was told.

    Args:
        attempts: that ended since, for notifications of each task.
        instance: of this HAL.
    """
    happened = moments_since(row, before)
    for one in row.spec.notify:
        for moment in happened:
            if moment in one.on:
                yield _of_job(row, one, moment, before, instance)
        if one.each_task and row.spec.array is not None:
            for attempt in attempts:
                ended = _OF_ATTEMPT.get(attempt.state)
                if ended in one.on:
                    yield _of_attempt(row, one, attempt, ended, instance)


def _of_job(row: JobRow, one: Notification, moment: Moment, before: NoticeRow, instance: str) -> Message:
    about = _about(row)
    if row.tasks > 1:
        counts = {name: getattr(row, name) for name in ("succeeded", "failed", "timed_out", "cancelled")}
        done = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        about["Tasks"] = f"{plural(row.tasks, 'task')}{': ' + done if done else ''}"
    if moment in ENDS and row.exit_code is not None:
        about["Exit code"] = str(row.exit_code)
    if row.reason:
        about["Reason"] = one_line(row.reason, MAX_TEXT_CHARS)
    subject = f"Job {row.id} {_name(row)} {_WORDS[moment]}"
    when = row.end_ms if moment in ENDS else row.start_ms if moment is Moment.RUNNING else before.end_ms
    unique = f"{row.id}.{moment.value}.{row.restarts}.{when or 0}"
    return _message(row, one, moment, subject, about, unique, instance, {})


def _of_attempt(row: JobRow, one: Notification, attempt: EndedAttempt, moment: Moment, instance: str) -> Message:
    about = _about(row) | {"Task": str(attempt.task), "Attempt": str(attempt.attempt)}
    subject = f"Task {row.id}.{attempt.task} {_name(row)} {_WORDS[moment]}"
    unique = f"{row.id}.{attempt.task}.{attempt.attempt}.{moment.value}"
    fields: dict[str, object] = {"task": attempt.task, "attempt": attempt.attempt}
    return _message(row, one, moment, subject, about, unique, instance, fields)


def _about(row: JobRow) -> dict[str, str]:
    about = {"Job": str(row.id), "Name": _name(row), "User": row.user, "Queue": row.queue, "Account": row.account}
    for word, at_ms in (("Submitted", row.submit_ms), ("Started", row.start_ms), ("Ended", row.end_ms)):
        if at_ms is not None:
            about[word] = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if row.start_ms is not None and row.end_ms is not None:
        about["Ran for"] = format_duration(row.end_ms - row.start_ms)
    return about


def _message(
    row: JobRow,
    one: Notification,
    moment: Moment,
    subject: str,
    about: dict[str, str],
    unique: str,
    instance: str,
    fields: dict[str, object],
) -> Message:
    lines = [f"{name + ':':<11} {value}" for name, value in about.items() if value]
    text = f"{subject}.\n\n" + "\n".join(lines) + f"\n\nhal show {row.id}\nhal logs {row.id}\n"
    message_id = f"{unique}.{instance[:12]}"
    body: dict[str, object] = {
        "text": subject,
        "id": message_id,
        "moment": moment.value,
        "job": str(row.id),
        "name": _name(row),
        "state": row.state.value,
        "user": row.user,
        "queue": row.queue,
        "account": row.account,
        "tasks": row.tasks,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "exit_code": row.exit_code,
        "submit_ms": row.submit_ms,
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "restarts": row.restarts,
        "reason": one_line(row.reason, MAX_TEXT_CHARS),
        **fields,
    }
    return Message(row.id, row.user, one.kind, one.to, message_id, subject, text, to_json(body))


def _name(row: JobRow) -> str:
    return row.name or row.spec.title
