"""`python -m hal.daemons.controller.startup.backup`: what `hal backup` and `hal restore` start."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hal.core.model import HALError
from hal.core.model.printable import printable
from hal.daemons.controller.config import read_config
from hal.runtime.config_file import config_text, is_anothers
from hal.runtime.home import find_home
from hal.store import StoreMark
from hal.store.backup import back_up, restore

EXIT_REFUSED = 1


def main(argv: list[str] | None = None) -> int:
    """Do one of the two; prints one line."""
    parser = argparse.ArgumentParser(prog="hal-backup", description=__doc__)
    parser.add_argument("what", choices=["backup", "restore"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--home", required=True)
    parser.add_argument("--to", default="", help="URL of the store to restore into")
    asked = parser.parse_args(argv)
    home = find_home(asked.home)
    try:
        home.create()
        store = asked.to or read_config(config_text(home.config), is_anothers).store_url or home.database
        if asked.what == "backup":
            done = back_up(store, asked.file)
        else:
            done = restore(asked.file, store)
            if not asked.to:
                StoreMark(home.store_mark, "-").accept_another()
    except HALError as error:
        sys.stderr.write(printable(f"error: {error.message}") + "\n")
        sys.stderr.write(printable(f"hint: {error.hint}") + "\n" if error.hint else "")
        return EXIT_REFUSED
    sys.stdout.write(f"{done} rows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
