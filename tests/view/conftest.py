"""Runs and hostile trials are made where rows and reports are tested."""

import sys
from pathlib import Path

for name in ("dataset", "report"):
    sys.path.insert(0, str(Path(__file__).parents[1] / name))
