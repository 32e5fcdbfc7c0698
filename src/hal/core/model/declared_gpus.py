"""`[[node.gpus]]` of hal.toml: the GPUs of a machine, where HAL is not to look for them itself.

Pure.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.errors import SpecError, shown
from hal.core.model.facts import MAX_GPU_FILES, MAX_PARTS, MAX_TEXT, GpuFacts
from hal.core.model.units import parse_amount

LAST_NUMA: Final = 1_023
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")
_VENDOR: Final = re.compile(r"[a-z0-9-]{1,31}\Z")


class GpuSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One GPU; the first is that of index 0."""

    vendor: Annotated[str, Meta(description="`nvidia` or `amd` decide which variables name it to a step")] = "nvidia"
    model: Annotated[str, Meta(description="name of the model: `NVIDIA H200`")] = ""
    memory: Annotated[str, Meta(description="its own memory")] = "0"
    uuid: Annotated[str, Meta(description="identifies it also when its index changes; empty: its index does")] = ""
    numa: Annotated[int, Meta(description="the nearest NUMA node; -1: unknown")] = -1
    island: Annotated[str, Meta(description="name of its link island: those with the same one are linked")] = ""
    files: Annotated[
        tuple[str, ...], Meta(description="device files that are its own: `/dev/nvidia0`; others may be kept from them")
    ] = ()

    @property
    def memory_bytes(self) -> int:
        return parse_amount("memory", self.memory, field="node.gpus.memory")


def declared_gpus(gpus: tuple[GpuSection, ...]) -> tuple[GpuFacts, ...]:
    """The facts of declared GPUs."""

    def links(one: int) -> tuple[str, ...]:
        mine = gpus[one]
        word = "XGMI" if mine.vendor == "amd" else "NV1"
        linked = (
            other != one and bool(mine.island) and gpus[other].island == mine.island for other in range(len(gpus))
        )
        return tuple(word if yes else "" for yes in linked)

    return tuple(
        GpuFacts(
            index=index,
            vendor=gpu.vendor,
            model=gpu.model,
            memory_bytes=gpu.memory_bytes,
            uuid=gpu.uuid,
            numa=gpu.numa,
            links=links(index) if len(gpus) > 1 else (),
            files=gpu.files,
        )
        for index, gpu in enumerate(gpus)
    )


def check_gpus(gpus: tuple[GpuSection, ...]) -> None:
    """Raises:
    SpecError: names the field and which of them it is.
    """
    if len(gpus) > MAX_PARTS:
        raise SpecError(f"node.gpus: {len(gpus)} GPUs; at most {MAX_PARTS} are allowed")
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    if len(set(uuids)) != len(uuids):
        raise SpecError("node.gpus: two have the same uuid", hint="leave it out, and their index identifies them")
    for index, gpu in enumerate(gpus):
        field = f"node.gpus[{index}]"
        if not _VENDOR.match(gpu.vendor):
            raise SpecError(f"{field}.vendor: '{shown(gpu.vendor)}' is no name", hint="nvidia, amd")
        if gpu.memory_bytes < 0 or not -1 <= gpu.numa <= LAST_NUMA:
            raise SpecError(f"{field}: memory or NUMA node out of range", hint=f"numa is -1 to {LAST_NUMA}")
        if len(gpu.model) > MAX_TEXT or not gpu.model.isprintable() or "\n" in gpu.model:
            raise SpecError(f"{field}.model: no line of at most {MAX_TEXT} characters")
        for name, text in (("uuid", gpu.uuid), ("island", gpu.island)):
            if text and not _WORD.match(text):
                raise SpecError(f"{field}.{name}: '{shown(text)}' is no word", hint="letters, digits, '.', '_', '-'")
        _check_files(field, gpu.files)


def _check_files(field: str, files: tuple[str, ...]) -> None:
    if len(files) > MAX_GPU_FILES:
        raise SpecError(f"{field}.files: {len(files)} files; at most {MAX_GPU_FILES} are allowed")
    for file in files:
        if not file.startswith("/dev/") or not _WORD.match(file[1:]) or ".." in file:
            raise SpecError(f"{field}.files: '{shown(file)}' is no device file", hint="/dev/nvidia0")
