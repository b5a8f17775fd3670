"""Defaults below a file: mappings are merged, everything else is replaced, and every value keeps its own place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.spec.yaml import Document, Path, Place


def merged(base: Document, base_path: Path, own: Document) -> Document:
    """Return ``own`` with what it does not say taken from ``base`` at ``base_path``."""
    graft = _Graft()
    if isinstance(base.get(*base_path), dict) and isinstance(own.data, dict):
        data = graft.merge((base, base_path), (own, ()), ())
    else:
        data = graft.copy((own, ()), ())
    return Document(own.file, data, graft.values, graft.keys)


_Spot = tuple[Document, Path]


class _Graft:
    """Builds one document from the parts of two."""

    def __init__(self) -> None:
        self.values: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}

    def copy(self, spot: _Spot, target: Path) -> Any:
        """Take over a value with all that is in it."""
        document, path = spot
        self._places(spot, target)
        value = document.get(*path)
        if isinstance(value, dict):
            return {key: self.copy((document, (*path, key)), (*target, key)) for key in value}
        if isinstance(value, list):
            return [self.copy((document, (*path, index)), (*target, index)) for index in range(len(value))]
        return value

    def merge(self, base: _Spot, own: _Spot, target: Path) -> dict[str, Any]:
        """Merge two mappings; the second wins."""
        self._places(own, target)
        lower, upper = base[0].get(*base[1]), own[0].get(*own[1])
        data = {}
        for key in [*upper, *(key for key in lower if key not in upper)]:
            below, above, place = (base[0], (*base[1], key)), (own[0], (*own[1], key)), (*target, key)
            if key in upper and isinstance(upper[key], dict) and isinstance(lower.get(key), dict):
                data[key] = self.merge(below, above, place)
            else:
                data[key] = self.copy(above if key in upper else below, place)
        return data

    def _places(self, spot: _Spot, target: Path) -> None:
        document, path = spot
        within = path[: len(path) - len(target)]
        for places, found in ((self.values, document.values.get(path)), (self.keys, document.keys.get(path))):
            if found is not None:
                places[target] = replace(found, within=within)
