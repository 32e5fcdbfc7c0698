"""One task of the array: throw darts at a square, count those that fall into the circle, write the count down.

Runs without HAL's packages: a step is any program. HAL tells it which task of the array it is.
"""

import json
import os
import random
from pathlib import Path

DARTS = 200_000

index = int(os.environ["HAL_ARRAY_INDEX"])
dice = random.Random(index)
hits = sum(dice.random() ** 2 + dice.random() ** 2 <= 1.0 for _ in range(DARTS))
Path(os.environ["DEMO_DIR"], f"darts-{index}.json").write_text(json.dumps({"darts": DARTS, "hits": hits}))
print(f"task {index} on {os.environ['HAL_NODE']}: {hits} of {DARTS} hit")
