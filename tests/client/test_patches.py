"""What `hal update` and `job.update` send of keywords."""

from __future__ import annotations

import pytest

from hal.client.patches import patch_fields
from hal.core.model import SpecError


@pytest.mark.parametrize(
    ("gpus", "request_of_node"),
    [
        (2, {"gpu": 2}),
        ("2", {"gpu": "2"}),
        (None, {"gpu": 0}),
        ("4@island", {"gpu": "4", "gpu-island": "4"}),
        ("1g.10gb:2", {"gpu": 0, "mig-1g.10gb": "2"}),
    ],
)
def test_gpus_are_amounts_of_the_request(gpus: object, request_of_node: dict[str, object]) -> None:
    """Slices take the place of whole GPUs."""
    assert patch_fields({"gpus": gpus}) == {"request": request_of_node}


def test_a_type_of_gpus_is_a_constraint() -> None:
    """What constraints the job has otherwise is not known here."""
    with pytest.raises(SpecError, match="'a100' is a constraint") as refused:
        patch_fields({"gpus": "a100:2"})
    assert "hal.gpu.a100" in refused.value.hint
    with pytest.raises(SpecError, match="`request` has 'gpu', too"):
        patch_fields({"gpus": "2@island", "request": {"gpu": 1}})
