"""The fan-in: starts when every task of the array has succeeded, adds their counts and prints an estimate of pi."""

import json
import os
from pathlib import Path

parts = [json.loads(path.read_text()) for path in Path(os.environ["DEMO_DIR"]).glob("darts-*.json")]
darts = sum(part["darts"] for part in parts)
hits = sum(part["hits"] for part in parts)
print(f"{4 * hits / darts:.4f} from {darts:,} darts thrown by {len(parts)} tasks")
