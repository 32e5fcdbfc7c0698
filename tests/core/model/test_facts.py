"""Labels and places that follow from what a node is made of."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError
from hal.core.model.facts import CpuFacts, Facts, GpuFacts, automatic_labels, check_domain, label_word
from hal.core.model.node_config import NodeSection, check_node_section


def test_what_is_known_of_a_node_is_a_label() -> None:
    """The domain has one label for each level, from the widest."""
    facts = Facts(
        system_id="debian",
        architecture="x86_64",
        host="blade7",
        cpu=CpuFacts(model="AMD EPYC 9654 96-Core Processor"),
        gpus=(GpuFacts(index=0, model="NVIDIA H200"), GpuFacts(index=1, model="NVIDIA H200")),
        sandbox="bwrap",
        domain="dc1/rack3",
    )
    assert automatic_labels("n1", facts) == {
        "hal.node": "n1",
        "hal.host": "blade7",
        "hal.os": "debian",
        "hal.arch": "x86_64",
        "hal.cpu": "amd-epyc-9654-96-core-processor",
        "hal.gpu": "nvidia-h200",
        "hal.gpu.h200": "h200",
        "hal.gpu.nvidia": "nvidia",
        "hal.sandbox": "bwrap",
        "hal.domain": "dc1/rack3",
        "hal.domain.1": "dc1",
        "hal.domain.2": "dc1/rack3",
    }


def test_what_is_not_known_or_not_one_thing_has_no_label() -> None:
    """GPUs of two models are no single label."""
    gpus = (GpuFacts(index=0, model="A"), GpuFacts(index=1, model="B"))
    assert automatic_labels("n1", Facts(gpus=gpus)) == {"hal.node": "n1"}


def test_words_that_all_gpus_have_are_labels() -> None:
    """A job of type a100 runs on either; one of 80gb runs on neither."""
    models = ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB")
    labels = automatic_labels("n1", Facts(gpus=tuple(GpuFacts(index=at, model=one) for at, one in enumerate(models))))
    assert labels == {"hal.node": "n1", "hal.gpu.a100": "a100", "hal.gpu.nvidia": "nvidia"}


@pytest.mark.parametrize(("text", "wanted"), [("", ""), ("/", ""), ("/dc1/rack3/", "dc1/rack3"), ("a", "a")])
def test_a_domain_path_is_its_levels(text: str, wanted: str) -> None:
    """Slashes around it mean nothing."""
    assert check_domain(text) == wanted


@pytest.mark.parametrize("text", ["a//b", "a/ b", "-a", "/".join("abcdefghi"), "a" * 64])
def test_a_bad_domain_path_is_refused(text: str) -> None:
    """Empty, blank, odd, too deep, too long."""
    with pytest.raises(SpecError, match="domain: "):
        check_domain(text)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ({"hal.node": "n1"}, "begin with 'hal.' are HAL's own"),
        ({"": "x"}, "is empty"),
        ({"a": "x" * 257}, "too long"),
        ({str(number): "" for number in range(65)}, "65 labels; at most 64"),
    ],
)
def test_bad_labels_are_refused(labels: dict[str, str], match: str) -> None:
    """Nobody can pretend to be another node."""
    with pytest.raises(SpecError, match=match):
        check_node_section(NodeSection(labels=labels))


def test_a_model_is_a_word() -> None:
    """Lower case, with dashes for all else."""
    assert label_word("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz") == "intel-r-xeon-r-gold-6338-cpu-2.00ghz"


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ((), "neither 'all' alone nor 'standard'"),
        (("/dev/fuse",), "neither 'all' alone nor 'standard'"),
        (("all", "standard"), "'all' with other words"),
        (("standard", "fuse"), "'fuse' is no pattern of device files"),
        (("standard", *(f"/dev/x{n}" for n in range(32))), "at most 32"),
    ],
)
def test_devices_of_a_node_are_all_or_the_standard_ones_and_others(devices: tuple[str, ...], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        check_node_section(NodeSection(devices=devices))
