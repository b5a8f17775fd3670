"""A trajectory without what differs between two trials that did the same: names of the run, ids, times, durations, numbers of seeds.

Two trials whose plain trajectories are equal asked the same, were answered the same, and called the same tools with the same results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from orchestrator.records.event import Event

_OF_THE_TRIAL = frozenset({"run", "trial", "launch", "seed", "sha256_before", "end_in_s", "started"})
_OVER_IDS = frozenset({"sha256", "digests"})
"""Fields of an event that hold digests over bytes with ids in them. Deeper down a digest stands for an image or a file that was sent."""
_ID_KEYS = frozenset({"id", "call_id"})
_AS_THEY_ARE = frozenset({"arguments", "content", "params", "tools", "escalation"})
"""Fields whose inside is what was said: an ``id`` in there is the task's, not a provider's."""
_PLACES = frozenset({"request", "call"})
"""Fields that hold the number of an earlier event."""


def plain(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """Yield the events as mappings of ``type``, ``source`` and what does not differ. An id becomes the number of its first mention."""
    ids: dict[str, int] = {}
    places: dict[int, int] = {}
    for number, event in enumerate(events):
        places[event.seq] = number
        data = {
            name: places.get(value, value) if name in _PLACES and isinstance(value, int) else value
            for name, value in event.data.items()
            if name not in _OVER_IDS
        }
        yield {"type": event.type, "source": event.source, **_without(data, ids)}


def plain_digest(events: Iterable[Event]) -> str:
    """Return the SHA-256, in hex, of a plain trajectory: equal for trials that did the same."""
    found = hashlib.sha256()
    for each in plain(events):
        found.update(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) + b"\n")
    return found.hexdigest()


def _without(value: Any, ids: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {
            name: _field(name, part, ids)
            for name, part in value.items()
            if name not in _OF_THE_TRIAL and not name.endswith(("_s", "seconds"))
        }
    return [_without(part, ids) for part in value] if isinstance(value, list) else value


def _field(name: str, value: Any, ids: dict[str, int]) -> Any:
    if name in _AS_THEY_ARE:
        return value
    return (
        f"#{ids.setdefault(value, len(ids))}" if name in _ID_KEYS and isinstance(value, str) else _without(value, ids)
    )
