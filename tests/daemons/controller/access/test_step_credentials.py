"""Steps that ask: whose they are, what opens nothing, and until when (C2)."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model.step_token import AttemptName, job_key, read_attempt_token, step_token
from hal.daemons.controller.access.step_credentials import RunningStep, StepCredentials
from hal.rest.identity import UnauthorizedError
from hal.rest.rights import Role
from hal.runtime.ancestry import attempt_around

INSTANCE, SECRET = "a" * 32, "b" * 64
ATTEMPT = f"{INSTANCE}-12.0.1-3"
GOOD = step_token(ATTEMPT, job_key(SECRET, 12))


def credentials(*running: RunningStep) -> StepCredentials:
    """One at which these attempts of task 0 live."""
    found = {read_attempt_token(one.token): one for one in running}
    return StepCredentials(lambda: INSTANCE, lambda: SECRET, lambda name: found.get(AttemptName(*name)))


ALICE = RunningStep(ATTEMPT, "alice", "gpu", "physics")


def test_a_step_is_its_submitter_in_its_queue_and_account() -> None:
    """With the role user, whoever submitted it."""
    who = credentials(ALICE).shown(GOOD, "uid 0")
    assert who is not None
    assert (who.user, who.role, who.scope.queues, who.scope.accounts) == ("alice", Role.USER, ("gpu",), ("physics",))
    assert (who.inside, who.narrowed, who.token) == (False, True, "step 12.0.1")


@pytest.mark.parametrize(
    "shown",
    [
        GOOD[:-1] + ("0" if GOOD[-1] != "0" else "1"),
        step_token(ATTEMPT, job_key("c" * 64, 12)),
        step_token(ATTEMPT.replace("-12.", "-13."), job_key(SECRET, 12)),
        step_token(ATTEMPT, ""),
        step_token(ATTEMPT.replace(".1-", ".2-"), job_key(SECRET, 12)),
        step_token(ATTEMPT.replace("-3", "-4"), job_key(SECRET, 12)),
    ],
)
def test_what_is_forged_or_of_another_attempt_opens_nothing(shown: str) -> None:
    """Another key, secret, job, attempt or epoch."""
    with pytest.raises(UnauthorizedError):
        credentials(ALICE).shown(shown, "uid 0")


def test_it_ends_with_its_attempt_and_is_no_other_hals() -> None:
    """Once the attempt does not live; a HAL of another name does not know it at all."""
    with pytest.raises(UnauthorizedError, match="has ended"):
        credentials().shown(GOOD, "uid 0")
    other = StepCredentials(lambda: "d" * 32, lambda: SECRET, lambda name: ALICE)
    assert other.shown(GOOD, "uid 0") is None


@given(st.text(max_size=300))
def test_safety_no_text_but_its_own_is_a_steps(text: str) -> None:
    """Any text is no step's, or opens nothing."""
    for shown in (text, f"halstep_{text}", f"halstep_{ATTEMPT}_{text}"):
        try:
            assert credentials(ALICE).shown(shown, "") is None or shown == GOOD
        except UnauthorizedError:
            continue


def test_a_follower_leaves_it_to_the_leader() -> None:
    """It knows that the step is one, by its key, and of nobody's name."""
    follower = StepCredentials(lambda: INSTANCE, lambda: SECRET, None)
    who = follower.shown(GOOD, "uid 0")
    assert who is not None
    assert (who.user, who.role, who.step) == ("job 12", Role.USER, ATTEMPT)


def test_a_process_is_known_by_what_its_parents_were_started_with() -> None:
    """A child with an empty environment, below a marked one; and not to another HAL."""
    marked = subprocess.Popen(
        ["sh", "-c", "env -i sleep 60 & echo $!; wait"],
        env={**os.environ, "HAL_ATTEMPT_TOKEN": ATTEMPT},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert marked.stdout is not None
    child = int(marked.stdout.readline())
    try:
        assert attempt_around(child, INSTANCE) == ATTEMPT
        assert attempt_around(child, "d" * 32) == ""
        assert attempt_around(os.getpid(), INSTANCE) == ""
        assert attempt_around(0, INSTANCE) == ""
    finally:
        os.kill(child, 9)
        marked.wait()
