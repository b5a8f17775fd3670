"""The real S3 and the image of these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "storage"))
sys.path.insert(0, str(Path(__file__).parent.parent / "sandbox"))

from s3_world import s3_url, seaweed

__all__ = ["s3_url", "seaweed"]
