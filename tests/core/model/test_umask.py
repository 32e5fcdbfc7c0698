"""The umask of a job: what people write, and what is refused."""

from __future__ import annotations

import pytest

from hal.core.model import JobSpec, SpecError, check_spec, spec_from_plain
from hal.core.model.umask import umask_bits


@pytest.mark.parametrize(
    ("written", "umask", "bits"),
    [("0027", "0027", 0o027), ("27", "0027", 0o027), ("777", "0777", 0o777), ("0", "0000", 0), ("", "", None)],
)
def test_a_umask_has_one_form_whichever_way_it_is_written(written: str, umask: str, bits: int | None) -> None:
    """Four octal digits; none stays none, which is not 0."""
    assert check_spec(JobSpec(command=("x",), umask=written)).umask == umask
    assert umask_bits(umask) == bits


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (27, "umask: expected text, got the number 27"),
        (True, "umask: expected text, got true or false"),
        ("0o27", "umask: '0o27' is not a umask"),
        ("0028", "umask: '0028' is not a umask"),
        ("1777", "umask: '1777' is not a umask"),
        ("00027", "umask: '00027' is not a umask"),
        ("u=rwx", "umask: 'u=rwx' is not a umask"),
        ("27\n", "is not a umask"),
        ("٢٧", "is not a umask"),
    ],
)
def test_what_is_no_umask_is_refused(written: object, says: str) -> None:
    """A number, too: whether it was meant as octal digits nobody knows."""
    with pytest.raises(SpecError) as refused:
        spec_from_plain({"command": ["x"], "umask": written})
    assert says in str(refused.value)
