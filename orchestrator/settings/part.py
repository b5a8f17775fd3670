"""What all groups of settings are made of."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

ADDRESS = r"^https?://[^@\s]+$"
"""An address without a user or key in it."""


def _network(text: str) -> str:
    ip_network(text)
    return text


NetworkText = Annotated[str, AfterValidator(_network)]
"""IP addresses in CIDR form, such as ``10.2.0.0/16``."""


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
