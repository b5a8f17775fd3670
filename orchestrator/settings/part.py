"""What all groups of settings are made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

ADDRESS = r"^https?://[^@\s]+$"
"""An address without a user or key in it."""


class Part(BaseModel):
    """A group of settings: unknown names are mistakes, and errors show no values."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )
