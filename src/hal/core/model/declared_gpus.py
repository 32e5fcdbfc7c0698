"""`[[node.gpus]]` of hal.toml: the GPUs of a machine, where HAL is not to look for them itself.

Pure.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.errors import SpecError, shown
from hal.core.model.facts import MAX_GPU_FILES, MAX_PARTS, MAX_SLICES, MAX_TEXT, GpuFacts, SliceFacts
from hal.core.model.gpu_slices import UUIDS, slice_type
from hal.core.model.units import parse_amount

LAST_NUMA: Final = 1_023
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")
_VENDOR: Final = re.compile(r"[a-z0-9-]{1,31}\Z")


class SliceSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One slice of a GPU in MIG mode."""

    type: Annotated[str, Meta(description="its profile: `1g.10gb`")]
    uuid: Annotated[str, Meta(description="by which CUDA finds it: `MIG-…`")]
    memory: Annotated[str, Meta(description="its own memory")] = "0"
    files: Annotated[tuple[str, ...], Meta(description="device files that are its own, beside those of its GPU")] = ()


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
    slices: Annotated[
        tuple[SliceSection, ...], Meta(description="it is in MIG mode: steps are given these, never the whole GPU")
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
            mig=bool(gpu.slices),
            slices=tuple(
                SliceFacts(
                    type=slice_type(one.type),
                    uuid=one.uuid,
                    memory_bytes=parse_amount("memory", one.memory, field="node.gpus.slices.memory"),
                    files=one.files,
                )
                for one in gpu.slices
            ),
        )
        for index, gpu in enumerate(gpus)
    )


def check_gpus(gpus: tuple[GpuSection, ...]) -> None:
    """Raises:
    SpecError: names the field and which of them it is.
    """
    if len(gpus) > MAX_PARTS:
        raise SpecError(f"node.gpus: {len(gpus)} GPUs; at most {MAX_PARTS} are allowed")
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid] + [one.uuid for gpu in gpus for one in gpu.slices]
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
        if len(gpu.slices) > MAX_SLICES:
            raise SpecError(f"{field}.slices: {len(gpu.slices)} slices; at most {MAX_SLICES} are allowed")
        for place, one in enumerate(gpu.slices):
            _check_slice(f"{field}.slices[{place}]", one)


def _check_slice(field: str, one: SliceSection) -> None:
    if not slice_type(one.type):
        raise SpecError(
            f"{field}.type: '{shown(one.type)}' is no type of slices", hint="as `nvidia-smi -L` names it: 1g.10gb"
        )
    if not one.uuid.startswith(UUIDS) or not _WORD.match(one.uuid):
        raise SpecError(
            f"{field}.uuid: '{shown(one.uuid)}' is not one of a slice", hint="as `nvidia-smi -L` names it: MIG-…"
        )
    if parse_amount("memory", one.memory, field=f"{field}.memory") < 0:
        raise SpecError(f"{field}.memory: less than nothing")
    _check_files(field, one.files)


def _check_files(field: str, files: tuple[str, ...]) -> None:
    if len(files) > MAX_GPU_FILES:
        raise SpecError(f"{field}.files: {len(files)} files; at most {MAX_GPU_FILES} are allowed")
    for file in files:
        if not file.startswith("/dev/") or not _WORD.match(file[1:]) or ".." in file:
            raise SpecError(f"{field}.files: '{shown(file)}' is no device file", hint="/dev/nvidia0")
