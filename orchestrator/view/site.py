"""What can be asked: one handler for each address below ``api/``, all of which only read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from orchestrator import __version__
from orchestrator.errors import NotFoundError, OrchestrateError, SpecError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.settings import Settings
from orchestrator.view.align import Pair
from orchestrator.view.compare import checks_json, pairs_of, steps_json
from orchestrator.view.display import show
from orchestrator.view.one import Files, row_of, trial_json
from orchestrator.view.opened import OpenedFile
from orchestrator.view.runs import Loaded, Runs
from orchestrator.view.texts import as_text, find, piece
from orchestrator.view.transcript import Transcript
from orchestrator.view.trials import neighbours, row_json, trial_table

MOST_EVENTS = 200
"""Events of one answer."""
MOST_ALIGNED = 8
"""Pairs of trials whose steps are kept as they were put side by side."""
MOST_LISTED = 1_000
"""Runs of one list."""
Answer = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Start:
    """What is looked at, and where to begin."""

    store: str | None = None
    """Its address, for the person; None for a file."""
    run: str | None = None
    """The run to show first."""


class Site:
    """The answers. ``store`` and what belongs to it are absent where one file is looked at."""

    def __init__(
        self, start: Start, *, file: OpenedFile | None = None, runs: Runs | None = None, files: Files | None = None
    ) -> None:
        self._start = start
        self._file = file
        self._runs = runs
        self._files = files
        self._pairs: OrderedDict[tuple[str | int, ...], list[Pair]] = OrderedDict()

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """Return the addresses below a prefix."""
        found: dict[str, Callable[[web.Request], Awaitable[Answer]]] = {
            "start": self._begin,
            "traces": self._traces,
            "runs": self._list,
            "run": self._run,
            "metrics": self._metrics,
            "trials": self._trials,
            "trial": self._trial,
            "changes": self._changes,
            "output": self._output,
            "events": self._events,
            "event": self._event,
            "compare": self._compare,
        }
        return [web.get(f"{prefix}/{name}", answering(handler)) for name, handler in found.items()]

    async def _begin(self, _request: web.Request) -> Answer:
        start = self._start
        file = {"file": self._file.name, "traces": len(self._file.traces)} if self._file else {"file": None}
        return {"version": __version__, "store": start.store, "run": start.run, **file}

    async def _traces(self, _request: web.Request) -> Answer:
        if self._file is None:
            msg = "this page shows a store, not a file"
            raise SpecError(msg)
        return self._file.listed()

    async def _list(self, request: web.Request) -> Answer:
        return await self._store()[0].list(number(request, "count", 100, MOST_LISTED))

    async def _run(self, request: web.Request) -> Answer:
        loaded = await self._loaded(request)
        report = loaded.report
        return loaded.head() | {"agents": report["agents"], "tasks": report["tasks"], "notes": report["notes"]}

    async def _metrics(self, request: web.Request) -> Answer:
        return await self._store()[0].metrics(request.query.get("run", ""))

    async def _trials(self, request: web.Request) -> Answer:
        loaded = await self._loaded(request)
        begin, count = number(request, "from", 0), number(request, "count", 100)
        query, sort = request.query.get("q", ""), request.query.get("sort", "")
        return await asyncio.to_thread(trial_table, loaded.data, loaded.hays, query, sort, begin, count)

    async def _trial(self, request: web.Request) -> Answer:
        loaded = await self._loaded(request)
        row = row_of(loaded.data, request.query.get("trial", ""))
        query, sort = request.query.get("q", ""), request.query.get("sort", "")
        beside = neighbours(loaded.data, loaded.hays, query, sort, str(row.trial))
        return trial_json(loaded.data, row) | {"beside": beside, "run_state": loaded.standing.state}

    async def _changes(self, request: web.Request) -> Answer:
        loaded = await self._loaded(request)
        return await self._store()[1].changes(row_of(loaded.data, request.query.get("trial", "")))

    async def _output(self, request: web.Request) -> Answer:
        loaded = await self._loaded(request)
        begin = number(request, "from", 0) if "from" in request.query else None
        return await self._store()[1].output(row_of(loaded.data, request.query.get("trial", "")), begin)

    async def _events(self, request: web.Request) -> Answer:
        transcript = await self._transcript(request)
        types = [word for word in request.query.get("types", "").split(",") if word]
        begin, count = number(request, "from", 0), number(request, "count", 100, MOST_EVENTS)
        return await asyncio.to_thread(_page, transcript, types, request.query.get("q", "")[:1000], begin, count)

    async def _event(self, request: web.Request) -> Answer:
        transcript = await self._transcript(request)
        place = number(request, "seq", 0)
        if place >= len(transcript.lines):
            msg = f"event {place}"
            raise NotFoundError(msg)
        event = await asyncio.to_thread(transcript.read, place)
        text = as_text(find(event, request.query.get("pointer", "")))
        return piece(text, number(request, "from", 0))

    async def _compare(self, request: web.Request) -> Answer:
        """Two trials of one run, or of two: ``right_run`` names the other one."""
        names = [request.query.get("run", "")] * 2
        names[1] = request.query.get("right_run") or names[0]
        data = [(await self._named(name)).data for name in names]
        trials = [request.query.get(side, "") for side in ("left", "right")]
        rows = [row_of(each, trial) for each, trial in zip(data, trials, strict=True)]
        found: Answer = {"sides": [row_json(row) for row in rows], "checks": checks_json(rows[0], rows[1])}
        try:
            left, right = [await self._store()[1].transcript(row, None) for row in rows]
        except NotFoundError as error:
            return found | {"steps": None, "problem": str(error)}
        key: tuple[str | int, ...] = (*names, *trials, len(left.lines), len(right.lines))
        if key not in self._pairs:
            self._pairs[key] = await asyncio.to_thread(pairs_of, left, right)
            while len(self._pairs) > MOST_ALIGNED:
                self._pairs.popitem(last=False)
        begin, count = number(request, "from", 0), number(request, "count", 20)
        return found | {"steps": await asyncio.to_thread(steps_json, left, right, self._pairs[key], begin, count)}

    async def _loaded(self, request: web.Request) -> Loaded:
        return await self._named(request.query.get("run", ""))

    async def _named(self, run: str) -> Loaded:
        if not run:
            msg = "which run? Name one"
            raise SpecError(msg)
        try:
            return await self._store()[0].get(run)
        except NotFoundError as error:
            msg = f"this store has no run {run[:200]!r}"
            raise SpecError(msg) from error

    def _store(self) -> tuple[Runs, Files]:
        if self._runs is None or self._files is None:
            msg = "this page shows one file; for a store start without a file"
            raise SpecError(msg)
        return self._runs, self._files

    async def _transcript(self, request: web.Request) -> Transcript:
        if self._file is not None:
            return await self._file.transcript(number(request, "trace", 0))
        loaded = await self._loaded(request)
        row = row_of(loaded.data, request.query.get("trial", ""))
        launch, files = number(request, "launch", 0) or None, self._store()[1]
        lost = row.outcome is None or row.outcome.outcome_class == "infra"
        if launch is None and lost and row.is_left(loaded.data.manifest.max_launches):
            with contextlib.suppress(NotFoundError):
                return await files.live(loaded.data.manifest.run, row)
        return await files.transcript(row, launch)


def store_site(start: Start, store: ObjectStore, bundles: BundleSource, settings: Settings) -> Site:
    """Return the answers about a store."""
    return Site(start, runs=Runs(store, settings), files=Files(store, bundles))


def _page(transcript: Transcript, types: list[str], text: str, begin: int, count: int) -> Answer:
    chosen = transcript.choose(types, text)
    return {
        "total": len(chosen),
        "of": len(transcript.lines),
        "from": begin,
        "counts": dict(transcript.counts()),
        "steps": len(transcript.steps),
        "closed": transcript.closed,
        "start": transcript.lines[0].t if transcript.lines else None,
        "events": [show(transcript, place) for place in chosen[begin : begin + count]],
    }


def number(request: web.Request, name: str, default: int, most: int = 10**12) -> int:
    """Return a number of the query. Raises SpecError when it is none."""
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        msg = f"{name} must be a number, not {text[:80]!r}"
        raise SpecError(msg)
    return min(int(text), most)


def answering(make: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
    """Return a handler that answers in JSON, with a tag by which the same answer is not sent twice."""

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            found, status = await make(request), 200
        except OrchestrateError as error:
            status = 404 if isinstance(error, NotFoundError) else 400 if isinstance(error, SpecError) else 502
            found = {"error": str(error)}
        # Only ASCII: half a surrogate pair in a name has no UTF-8.
        body = json.dumps(found, separators=(",", ":")).encode()
        tag = hashlib.sha256(body).hexdigest()[:32]
        headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache, private"}
        if status == 200 and request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        answer = web.Response(status=status, body=body, content_type="application/json", headers=headers)
        if len(body) > 4096:
            answer.enable_compression()
        return answer

    return handler
