"""What the mail options of other schedulers become: notifications, where the HAL sends mail.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from hal.cli.jobs.foreign_options import Translation, bad

NO_MAIL: Final = "this HAL sends no mail; use hal wait, or hal events"

OF_SLURM: Final[Mapping[str, Sequence[str]]] = {
    "BEGIN": ("running",),
    "END": ("ended",),
    "FAIL": ("failed", "timed-out"),
    "REQUEUE": ("requeued",),
    "TIME_LIMIT": ("timed-out",),
    "ARRAY_TASKS": ("each-task",),
    "ALL": ("running", "ended", "requeued"),
    "NONE": (),
}
_NO_MOMENTS: Final = ("INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90")
OF_PBS: Final[Mapping[str, Sequence[str]]] = {
    "a": ("failed", "timed-out", "cancelled"),
    "b": ("running",),
    "e": ("ended",),
    "j": ("each-task",),
    "n": (),
    "p": (),
}


class Mail(NamedTuple):
    """What is known of mail where a script is submitted."""

    user: str
    """Who submits: to whom mail goes where nobody is named."""
    is_sent: Callable[[], bool]
    """Asks the HAL whether it sends mail; only where a script asks for some."""


NONE: Final = Mail("", lambda: False)


def slurms_mail(made: Translation, mail: Mail, kinds: str | None, users: str) -> None:
    """Translate `--mail-type` and `--mail-user`.

    Raises:
        SpecError: a type that sbatch has not.
    """
    if kinds is None:
        if users:
            made.ignore("--mail-user", "there is no --mail-type")
        return
    words: list[str] = []
    for kind in (one.strip().upper() for one in kinds.split(",")):
        if kind in _NO_MOMENTS:
            made.ignore(f"--mail-type={kind}", "HAL sends nothing at that moment")
        elif kind not in OF_SLURM:
            bad("--mail-type", kind, f"types: {', '.join(OF_SLURM)}")
        else:
            words += OF_SLURM[kind]
    _put(made, mail, "--mail-type", words, users)


def pbs_mail(made: Translation, mail: Mail, letters: str, users: str) -> None:
    """Translate `-m` and `-M`; without `-m`, PBS sends mail when a job is aborted.

    Raises:
        SpecError: a letter that qsub has not.
    """
    words: list[str] = []
    for letter in letters:
        if letter not in OF_PBS:
            bad("-m", letters, f"letters: {''.join(OF_PBS)}")
        words += OF_PBS[letter]
    _put(made, mail, "-m", words, users)


def _put(made: Translation, mail: Mail, written: str, words: Sequence[str], users: str) -> None:
    moments = list(dict.fromkeys(words))
    if not moments or moments == ["each-task"] or "notify" in made.given:
        return
    targets = [one.strip() for one in users.split(",") if one.strip()] or [mail.user]
    if not mail.is_sent():
        made.ignore(written, NO_MAIL)
        return
    texts = [f"{','.join(moments)}:{target}" for target in targets if target]
    made.add("notify", texts, f"notify {' '.join(texts)}")
