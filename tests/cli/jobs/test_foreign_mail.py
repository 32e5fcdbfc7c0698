"""What `--mail-type` of Slurm and `-m` of PBS become."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from hal.cli.jobs.foreign_mail import NO_MAIL, Mail, pbs_mail, slurms_mail
from hal.cli.jobs.foreign_options import Translation
from hal.core.model import SpecError

SENT = Mail("ann", lambda: True)


def slurm(kinds: str | None, users: str = "", mail: Mail = SENT, given: Collection[str] = ()) -> Translation:
    """Of these two options."""
    made = Translation("#SBATCH", given)
    slurms_mail(made, mail, kinds, users)
    return made


@pytest.mark.parametrize(
    ("kinds", "users", "found"),
    [
        ("END", "ann@example.org", ("ended:ann@example.org",)),
        ("BEGIN,FAIL", "", ("running,failed,timed-out:ann",)),
        ("all,array_tasks", "a@x.org,b@x.org", tuple(f"running,ended,requeued,each-task:{one}@x.org" for one in "ab")),
        ("FAIL,TIME_LIMIT", "", ("failed,timed-out:ann",)),
        ("NONE", "ann@example.org", None),
        ("ARRAY_TASKS", "ann@example.org", None),
    ],
)
def test_types_of_slurm_are_moments(kinds: str, users: str, found: tuple[str, ...] | None) -> None:
    assert slurm(kinds, users).options.get("notify") == found


def test_what_hal_sends_nothing_for_is_named_as_ignored() -> None:
    made = slurm("END,TIME_LIMIT_80")
    assert made.options["notify"] == ("ended:ann",)
    assert made.ignored == ["--mail-type=TIME_LIMIT_80 (HAL sends nothing at that moment)"]
    assert slurm(None, "ann@example.org").ignored == ["--mail-user (there is no --mail-type)"]


def test_where_no_mail_is_sent_it_is_named_as_ignored() -> None:
    made = slurm("END", mail=Mail("ann", lambda: False))
    assert (made.options, made.ignored) == ({}, [f"--mail-type ({NO_MAIL})"])


def test_a_hal_is_asked_only_where_a_script_asks_for_mail() -> None:
    def asked() -> bool:
        raise AssertionError("nobody asked for mail")

    for kinds, given in (("NONE", ()), (None, ()), ("END", ("notify",))):
        assert slurm(kinds, mail=Mail("ann", asked), given=given).options == {}


def test_a_type_that_sbatch_has_not_is_refused() -> None:
    with pytest.raises(SpecError, match="SOON"):
        slurm("SOON")


@pytest.mark.parametrize(
    ("letters", "found"),
    [("abe", "failed,timed-out,cancelled,running,ended:ann"), ("n", None), ("a", "failed,timed-out,cancelled:ann")],
)
def test_letters_of_pbs_are_moments(letters: str, found: str | None) -> None:
    made = Translation("#PBS", ())
    pbs_mail(made, SENT, letters, "")
    assert made.options.get("notify") == (None if found is None else (found,))
