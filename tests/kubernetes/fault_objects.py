"""What an API server keeps: objects with one counter of versions, a history of limited length, and who watches."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import orjson

Key = tuple[str, str, str]
"""Plural, namespace, name."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event."""

    version: int
    type: str
    key: Key
    object: dict
    before: dict | None
    line: bytes
    """As it goes over the wire; one copy for all who watch."""


@dataclass(eq=False)
class Watcher:
    """Who watches, and what has not been sent to it yet."""

    plural: str
    namespace: str
    selects: Callable[[dict], bool]
    lines: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    cut: bool = False
    """It read too slowly."""

    def offer(self, change: Change, most: int) -> None:
        if change.key[0] != self.plural or (self.namespace and change.key[1] != self.namespace):
            return
        line = _seen(change, self.selects)
        if line is not None:
            self.lines.append(line)
            self.cut = self.cut or len(self.lines) > most
            self.news.set()


class Objects:
    """All objects of one cluster."""

    def __init__(self, history: int = 10_000, backlog: int = 100_000) -> None:
        self.version = 100
        self.skew = timedelta()
        """How far the cluster's clock is from ours."""
        self.watchers: set[Watcher] = set()
        self._all: dict[str, dict[tuple[str, str], dict]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._forgotten = 100
        """Watches from before this version are answered with 410."""
        self.backlog = backlog
        """A watch that is behind by more events is ended, without a word."""

    def now(self) -> str:
        return (datetime.now(UTC) + self.skew).strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, key: Key) -> dict | None:
        return self._all.get(key[0], {}).get(key[1:])

    def of(self, plural: str, namespace: str = "") -> list[dict]:
        """Return objects in the order of their names."""
        kept = self._all.get(plural, {})
        return [kept[place] for place in sorted(kept) if not namespace or place[0] == namespace]

    def add(self, key: Key, body: dict) -> dict:
        about = {
            "creationTimestamp": self.now(),
            **body.get("metadata", {}),
            "name": key[2],
            "uid": str(uuid.uuid4()),
        }
        if key[1]:
            about["namespace"] = key[1]
        return self.put("ADDED", key, {**body, "metadata": about})

    def put(self, kind: str, key: Key, body: dict) -> dict:
        """Store a version of an object; ``DELETED`` takes it away, and its last version has the version of its end."""
        self.version += 1
        made = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        kept = self._all.setdefault(key[0], {})
        before = kept.get(key[1:])
        if kind == "DELETED":
            kept.pop(key[1:], None)
        else:
            kept[key[1:]] = made
        line = b'{"type":"' + kind.encode() + b'","object":' + orjson.dumps(made) + b"}\n"
        change = Change(self.version, kind, key, made, before, line)
        if len(self._history) == self._history.maxlen and self._history:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for watcher in self.watchers:
            watcher.offer(change, self.backlog)
        return made

    def forget_history(self) -> None:
        """Compact: watches from earlier versions are answered with 410."""
        self._history.clear()
        self._forgotten = self.version

    def kept(self) -> tuple[int, dict[str, dict[tuple[str, str], dict]]]:
        """A backup of all that is there."""
        return self.version, {plural: dict(objects) for plural, objects in self._all.items()}

    def restore(self, backup: tuple[int, dict[str, dict[tuple[str, str], dict]]]) -> None:
        """Be as a backup was: its versions come again. Watches are cut."""
        self.version, objects = backup
        self._all = {plural: dict(each) for plural, each in objects.items()}
        self._history.clear()
        self._forgotten = self.version
        for watcher in self.watchers:
            watcher.cut = True
            watcher.news.set()

    def forgotten(self, version: int) -> bool:
        return version < self._forgotten

    def since(self, version: int, plural: str, namespace: str) -> Iterator[Change]:
        for change in self._history:
            if change.version > version and change.key[0] == plural and namespace in ("", change.key[1]):
                yield change


def _seen(change: Change, selects: Callable[[dict], bool]) -> bytes | None:
    """Return what a watch with a selector shows of a change: an object that no longer fits is DELETED for it."""
    if selects(change.object):
        return change.line
    if change.before is not None and selects(change.before) and change.type == "MODIFIED":
        return b'{"type":"DELETED","object":' + orjson.dumps(change.object) + b"}\n"
    return None


def seen(change: Change, selects: Callable[[dict], bool]) -> bytes | None:
    return _seen(change, selects)


_SET = re.compile(r"([^\s!=,]+)\s+(in|notin)\s+\(([^)]*)\)")


def selector(labels: str, fields: str) -> Callable[[dict], bool]:
    """Return what a label selector and a field selector choose."""
    wanted = [*_label_terms(labels), *_field_terms(fields)]
    if not wanted:
        return lambda _: True
    return lambda item: all(term(item) for term in wanted)


def _label_terms(text: str) -> Iterator[Callable[[dict], bool]]:
    for name, how, values in _SET.findall(text):
        chosen = {each.strip() for each in values.split(",")}
        yield lambda item, name=name, chosen=chosen, how=how: (_label(item, name) in chosen) == (how == "in")
    for part in filter(None, (each.strip() for each in _SET.sub("", text).split(","))):
        if "!=" in part:
            name, value = part.split("!=")
            yield lambda item, name=name, value=value: _label(item, name) != value
        elif "=" in part:
            name, value = part.replace("==", "=").split("=")
            yield lambda item, name=name, value=value: _label(item, name) == value
        elif part.startswith("!"):
            yield lambda item, name=part[1:]: _label(item, name) is None
        else:
            yield lambda item, name=part: _label(item, name) is not None


def _label(item: dict, name: str) -> str | None:
    return (item["metadata"].get("labels") or {}).get(name)


def _field_terms(text: str) -> Iterator[Callable[[dict], bool]]:
    for part in filter(None, text.split(",")):
        differs = "!=" in part
        path, value = part.replace("!=", "=").replace("==", "=").split("=")
        yield lambda item, path=path, value=value, differs=differs: (_field(item, path) == value) != differs


def _field(item: dict, path: str) -> str:
    for word in path.split("."):
        item = item.get(word) or {} if isinstance(item, dict) else {}
    return item if isinstance(item, str) else ""
