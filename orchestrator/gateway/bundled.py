"""JSON files of a launch's ``world`` bundles, as models."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.gateway.refusal import Refusal
from orchestrator.interfaces import BundleSource

Model = TypeVar("Model", bound=BaseModel)


async def read_bundled(bundles: BundleSource, digest: str, name: str, model: type[Model]) -> Model | None:
    """Return a file of a bundle; None when the bundle has none of that name. Raises StoreError and ValidationError."""
    folder = await bundles.fetch("world", digest)
    try:
        return model.model_validate_json(await asyncio.to_thread((folder / name).read_bytes))
    except FileNotFoundError:
        return None


def unusable(kind: str, what: str, error: ValidationError) -> Refusal:
    """Return the refusal of a launch with a file that is not usable: its first mistake, without what stands in it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return Refusal(400, kind, f"{what} not usable: {'.'.join(map(str, first['loc']))}: {first['msg']}")
