"""What came of one tiny call to a model before a run."""

from __future__ import annotations

from typing import Literal

from orchestrator.records.base import Record


class ProbeResult(Record):
    """Whether a model answers."""

    model: str
    """``provider/name``."""
    result: Literal["answered", "refused", "failed"]
    """``refused``: the provider does not take the key or does not know the model. ``failed``: anything else, retries included."""
    status: int = 0
    """HTTP status of the provider; 0 when there was none, or it answered."""
    reason: str = ""
    """Why it did not answer, in one line; never with the key in it."""
