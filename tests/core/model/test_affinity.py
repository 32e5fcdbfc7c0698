"""Terms of affinity as people write them."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError
from hal.core.model.affinity import MAX_TERMS, affinity_of, followed, level_of, preferred_of
from hal.core.model.job import JobSpec, check_spec


def test_a_term_without_a_value_means_the_jobs_own_label() -> None:
    """With one it means that one."""
    assert affinity_of("app@node", {"app": "web"}, "apart") == ("app", "web", "node")
    assert affinity_of("app/tier=db@rack", {"app": "web"}, "apart").label == "app/tier=db"


def test_only_labels_of_apps_are_followed() -> None:
    """In order, so that equal labels are equal."""
    assert followed({"run": "7", "apple": "x", "app/tier": "db", "app": "web"}) == ("app=web", "app/tier=db")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (("app",), "is not KEY"),
        (("@node",), "is not KEY"),
        (("app@",), "is not KEY"),
        (("team=a@node",), "not placed by label 'team'"),
        (("app/tier@node",), "and it has none"),
        (("app@a b",), "apart"),
        (("app=a b@node",), "is no label"),
        (("app=\n\x00@node",), "is no label"),
        (("app=@node",), "is no label"),
        (("app/=1@node",), "is no label"),
        ((f"app={'x' * 129}@node",), "is no label"),
        (("app@node", "app@node"), "named twice"),
        (tuple(f"app=a{number}@node" for number in range(MAX_TERMS + 1)), "at most"),
    ],
)
def test_what_is_no_term_is_refused(terms: tuple[str, ...], message: str) -> None:
    """Before anything is stored, of both kinds."""
    for field in ("apart", "together"):
        spec = JobSpec(command=("true",), labels={"app": "web"}, **{field: terms})  # type: ignore[arg-type]
        with pytest.raises(SpecError, match=message.replace("apart", field)):
            check_spec(spec)


def test_a_preferred_term_has_a_weight_or_the_most() -> None:
    """Behind its level."""
    assert preferred_of("app=db@rack:7", {}, "prefer_apart") == (("app", "db", "rack"), 7)
    assert preferred_of("app@node", {"app": "web"}, "prefer_apart") == (("app", "web", "node"), 100)
    assert (level_of("app=db@dc/row:7"), level_of("app=db@node")) == ("dc/row", "node")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (("app=a@node:0",), "no weight from 1 to 100"),
        (("app=a@node:101",), "no weight from 1 to 100"),
        (("app=a@node:",), "no weight from 1 to 100"),
        (("app=a@node:1.5",), "no weight from 1 to 100"),
        (("app=a:5",), "is not KEY"),
        (("app=a@node:1", "app=a@node:2"), "named twice"),
        (tuple(f"app=a{number}@node:1" for number in range(MAX_TERMS + 1)), "at most"),
    ],
)
def test_what_is_no_preferred_term_is_refused(terms: tuple[str, ...], message: str) -> None:
    """With the field in front."""
    spec = JobSpec(user="ann", command=("true",), prefer_together=terms)
    with pytest.raises(SpecError, match=message) as caught:
        check_spec(spec)
    assert str(caught.value).startswith("prefer_together")
