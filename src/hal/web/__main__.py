"""`python -m hal.web`: the process that serves the page."""

from __future__ import annotations

import sys

from hal.web.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
