"""What every spec model shares: frozen, strict, no unknown keys; and the value types that several files use.

Specs are validated from JSON text, never from Python objects: in that mode strictness means "a number is a number",
while lists become tuples and RFC 3339 text becomes a time.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Spec(BaseModel):
    """Base of everything a person writes."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


def parse_bytes(value: Any) -> Any:
    """Turn ``1Gi``, ``512Mi``, ``10M`` or a plain number into bytes; leave anything else to the type check."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti|k|M|G|T|)", value)
    if match is None:
        msg = f"{value!r} is not a size; write bytes or a number with Ki, Mi, Gi, k, M or G, for example 512Mi"
        raise ValueError(msg)
    return int(match[1]) * _UNITS[match[2]]


Bytes = Annotated[
    int,
    BeforeValidator(
        parse_bytes, json_schema_input_type=int | Annotated[str, Field(pattern=r"^\d+(Ki|Mi|Gi|Ti|k|M|G|T)?$")]
    ),
    Field(gt=0),
]
"""A size in bytes; in files also ``512Mi`` or ``1Gi``."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$")]
"""A name that is safe in keys, paths and labels: lower case letters, digits, dots, dashes, underscores; 1 to 100."""


def _inside(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/") or "\0" in value or "\n" in value:
        msg = f"{value!r} must be a path inside the folder: relative, with '/', without '..'"
        raise ValueError(msg)
    return value


RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_inside)]
"""A path below the folder that the text names, with ``/`` and without ``..``."""

Glob = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_inside)]
"""A pattern over relative paths: ``*`` stays within one folder, ``**`` crosses folders, ``?`` is one character."""


def canonical_json(value: Any) -> bytes:
    """Return the one JSON text of a value: sorted keys, no spaces, UTF-8, no NaN.

    Raises ValueError for NaN or infinity, which have no JSON form.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return ``sha256:<hex>`` of a JSON value or a spec.

    Formatting and key order of the source do not matter, every value does.
    """
    plain = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
    return "sha256:" + hashlib.sha256(canonical_json(plain)).hexdigest()
