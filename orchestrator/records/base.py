"""What every record shares: frozen, strict, versioned, one JSON form."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import StoreError
from orchestrator.spec.base import canonical_json


class Record(BaseModel):
    """Base of everything the system writes down."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    def to_bytes(self) -> bytes:
        """Return the record as canonical JSON: equal records are equal bytes."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "record") -> Self:
        """Read a record back.

        Raises StoreError when the bytes are not a record of this type and version; ``where`` names the object in the
        message.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            msg = f"{where} is not a {cls.__name__} that this version reads: {place}: {first['msg']}"
            raise StoreError(msg, cause="record_unreadable") from error


class BlobRef(Record):
    """A large object in the store and what its bytes must be."""

    key: str
    """Store key."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the bytes, in hex."""
    size: int = Field(ge=0)
    """Bytes."""
