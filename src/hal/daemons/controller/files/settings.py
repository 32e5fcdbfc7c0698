"""`[files]` of hal.toml: how much may be shipped and collected. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model import Duration, SpecError
from hal.core.model.bundle import MAX_BUNDLE_BYTES, MAX_ENTRIES, BundleLimits
from hal.core.model.config_sections import Section, check_range
from hal.core.model.units import parse_amount

LEAST_STORE_BYTES: Final = 16 << 20
MOST_STORE_BYTES: Final = 1 << 50
SHORTEST_KEPT_MS: Final = 60_000
LONGEST_KEPT_MS: Final = 36_500 * 86_400_000
MAX_COLLECTED_FILES: Final = 1_000_000


class FilesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[files]`"""

    ship_size: Annotated[str, Meta(description="largest directory that is shipped with a job; 0: none is")] = "256MiB"
    ship_files: Annotated[int, Meta(description="most files and directories in it")] = 20_000
    bundles: Annotated[str, Meta(description="space for what was shipped; the longest unused goes first")] = "20GiB"
    user_bundles: Annotated[str, Meta(description="the same, of one user")] = "4GiB"
    bundles_kept: Annotated[Duration, Meta(description="how long what no job needs any more is kept")] = Duration(
        7 * 86_400_000
    )
    collect_size: Annotated[str, Meta(description="most that is collected of a step; 0: nothing is")] = "1GiB"
    collect_files: Annotated[int, Meta(description="most files of it")] = 10_000
    collected: Annotated[str, Meta(description="space for what was collected")] = "100GiB"
    user_collected: Annotated[str, Meta(description="the same, of one user")] = "25GiB"

    def amount(self, name: str) -> int:
        """A size of it, in bytes."""
        return parse_amount("memory", getattr(self, name), field=f"files.{name}")

    @property
    def ship_limits(self) -> BundleLimits:
        return BundleLimits(size_bytes=self.amount("ship_size"), files=self.ship_files)

    @property
    def collect_limits(self) -> BundleLimits:
        return BundleLimits(size_bytes=self.amount("collect_size"), files=self.collect_files)


def check_files(section: FilesSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    for name, least, most in (
        ("ship_size", 0, MAX_BUNDLE_BYTES),
        ("collect_size", 0, MOST_STORE_BYTES),
        ("bundles", LEAST_STORE_BYTES, MOST_STORE_BYTES),
        ("user_bundles", 0, MOST_STORE_BYTES),
        ("collected", 0, MOST_STORE_BYTES),
        ("user_collected", 0, MOST_STORE_BYTES),
    ):
        size_bytes = section.amount(name)
        if not least <= size_bytes <= most:
            raise SpecError(f"files.{name}: {getattr(section, name)} is out of range", hint=f"{least} to {most} bytes")
    check_range("files.ship_files", section.ship_files, 1, MAX_ENTRIES)
    check_range("files.collect_files", section.collect_files, 1, MAX_COLLECTED_FILES)
    check_range("files.bundles_kept", section.bundles_kept, SHORTEST_KEPT_MS, LONGEST_KEPT_MS)


FILES: Final = Section(
    name="files",
    kind=FilesSection,
    reader="controller",
    about="What is shipped with jobs, and collected of them ([docs/files.md](../docs/files.md)).",
    check=check_files,
)
