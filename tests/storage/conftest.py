"""The real S3 of these tests."""

from __future__ import annotations

from s3_world import s3_url, seaweed, wire

__all__ = ["s3_url", "seaweed", "wire"]
