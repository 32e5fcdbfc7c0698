"""Bring the page's libraries from npm into `src/hal/web/static/vendor`, each as one module with its licence.

The page is served without a build step: a module that names another package is made to name its file. Needs npm.

python tools/vendor_web.py            # write them again
python tools/vendor_web.py --check    # whether what is there is what the pinned versions give
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
STATIC: Final = ROOT / "src/hal/web/static/vendor"
FILES: Final = (
    # package, version, file in it, where it goes
    ("preact", "11.2.0", "dist/preact.mjs", STATIC / "preact.js"),
    ("preact", "11.2.0", "hooks/dist/hooks.mjs", STATIC / "hooks.js"),
    ("preact", "11.2.0", "LICENSE", STATIC / "preact.LICENSE.txt"),
    ("htm", "3.1.1", "dist/htm.mjs", STATIC / "htm.js"),
    ("htm", "3.1.1", "LICENSE", STATIC / "htm.LICENSE.txt"),
    ("@fontsource-variable/inter", "5.3.0", "files/inter-latin-wght-normal.woff2", STATIC / "inter.woff2"),
    ("@fontsource-variable/inter", "5.3.0", "LICENSE", STATIC / "inter.LICENSE.txt"),
    (
        "@fontsource-variable/jetbrains-mono",
        "5.3.0",
        "files/jetbrains-mono-latin-wght-normal.woff2",
        STATIC / "jetbrains-mono.woff2",
    ),
    ("@fontsource-variable/jetbrains-mono", "5.3.0", "LICENSE", STATIC / "jetbrains-mono.LICENSE.txt"),
)
NAMES: Final = {"preact": "./preact.js", "preact/hooks": "./hooks.js"}


def packed(package: str, version: str, directory: Path) -> tarfile.TarFile:
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"], cwd=directory, check=True, capture_output=True, text=True
    )
    return tarfile.open(directory / done.stdout.strip().splitlines()[-1])


def as_served(name: str, content: bytes) -> bytes:
    """The module as browsers load it here: without a map of its source, its imports by file."""
    if not name.endswith(".js"):
        return content
    text = re.sub(r"\n?//# sourceMappingURL=.*", "", content.decode())
    return re.sub(r'from"([^"./][^"]*)"', lambda found: f'from"{NAMES[found[1]]}"', text).encode() + b"\n"


def main() -> int:
    check = "--check" in sys.argv[1:]
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        opened: dict[str, tarfile.TarFile] = {}
        for package, version, inside, place in FILES:
            if package not in opened:
                opened[package] = packed(package, version, Path(directory))
            member = opened[package].extractfile(f"package/{inside}")
            assert member is not None, (package, inside)
            content = as_served(place.name, member.read())
            if check:
                wrong += [place] if not place.is_file() or place.read_bytes() != content else []
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    for place in wrong:
        print(f"{place.relative_to(ROOT)} is not what its package has")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
