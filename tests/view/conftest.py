"""Runs, hostile trials and a real S3 are made where they are tested."""

import sys
from pathlib import Path

for name in ("dataset", "report", "storage"):
    sys.path.insert(0, str(Path(__file__).parents[1] / name))

from s3_world import s3_url, seaweed  # noqa: E402 - found by what is above

__all__ = ["s3_url", "seaweed"]
