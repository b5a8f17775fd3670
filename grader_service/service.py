"""The service as drivers meet it: HTTP, one verdict however often and by however many it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import uuid
from collections import Counter
from typing import Any

from aiohttp import web

from grader_service.evidence import NothingToGradeError
from grader_service.grade import Grading, grade
from orchestrator.errors import InfrastructureError
from orchestrator.interfaces.waits import waiting
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.verdict import Verdict

log = logging.getLogger("grader_service")

_TELL_SECONDS, _TELL_AGAIN_SECONDS = 5.0, 30.0
"""After which grading that waits is logged, and again."""
_REQUEST_BYTES = 64 << 10


class Service:
    """Answers requests; grades each trial once, however many ask for it."""

    def __init__(self, grading: Grading, token: str, concurrency: int, *, probed: bool = False) -> None:
        """``probed``: also answer ``/healthz`` to whoever has no token, as a cluster's probes."""
        self._probed = probed
        self._grading = grading
        self._token = token.encode()
        self._slots = asyncio.Semaphore(concurrency)
        self._running: dict[tuple[str, TrialId], asyncio.Task[Verdict]] = {}
        self._waits: dict[tuple[str, TrialId], str] = {}
        """What grading waits for."""
        self._telling: asyncio.Task[None] | None = None

    def app(self) -> web.Application:
        """Return the HTTP application."""
        app = web.Application(client_max_size=_REQUEST_BYTES)
        app.router.add_post("/grade", self._post_grade)
        app.router.add_get("/waits", self._get_waits)
        app.router.add_get("/healthz", self._get_healthz)
        return app

    async def close(self) -> None:
        """Abandon what is being graded. Verdicts are single markers, so nothing is left half-written."""
        tasks: list[asyncio.Task[Any]] = [*self._running.values(), *filter(None, [self._telling])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _get_healthz(self, request: web.Request) -> web.Response:
        if not self._probed and not self._allowed(request):
            return _problem(401, "unauthorized", "a bearer token is needed")
        return web.json_response({"ok": True, "version": self._grading.version, "running": len(self._running)})

    async def _get_waits(self, request: web.Request) -> web.Response:
        """Answer what the trials of a run that are asked for now wait for: whoever asked has no answer before their end."""
        if not self._allowed(request):
            return _problem(401, "unauthorized", "a bearer token is needed")
        wanted = request.query.get("run")
        return web.json_response(
            {"waits": {str(trial): why for (run, trial), why in self._waits.items() if run == wanted}}
        )

    async def _post_grade(self, request: web.Request) -> web.Response:
        if not self._allowed(request):
            return _problem(401, "unauthorized", "a bearer token is needed")
        try:
            body = await request.json()
            run, trial = str(body["run"]), TrialId.parse(str(body["trial"]))
            keys.manifest(run)  # a name that no key can have is the asker's mistake
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return _problem(400, "bad_request", f'send {{"run": …, "trial": "TASK@AGENT:N"}} ({error})')
        try:
            verdict = await asyncio.shield(self._task(run, trial))
        except NothingToGradeError as error:
            return _problem(error.status, "nothing_to_grade", str(error))
        except InfrastructureError as error:
            await self._note(run, trial, error)
            return _problem(503, error.cause, str(error))
        return web.Response(body=verdict.to_bytes(), content_type="application/json")

    def _allowed(self, request: web.Request) -> bool:
        return hmac.compare_digest(request.headers.get("Authorization", "").encode(), b"Bearer " + self._token)

    def _task(self, run: str, trial: TrialId) -> asyncio.Task[Verdict]:
        name = (run, trial)
        task = self._running.get(name)
        if task is None:
            task = asyncio.create_task(self._grade(run, trial))
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return task

    async def _grade(self, run: str, trial: TrialId) -> Verdict:
        name = (run, trial)
        try:
            async with self._slots:
                verdict = await grade(self._grading, run, trial, lambda why: self._wait(name, why))
        finally:
            self._waits.pop(name, None)
        log.info("graded %s of run %s: %s", trial, run, verdict.result)
        return verdict

    def _wait(self, name: tuple[str, TrialId], why: str) -> None:
        """Note what a trial waits for, and have it told as long as any waits."""
        if not why:
            self._waits.pop(name, None)
            return
        self._waits[name] = why
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Log now and then what waits for what, beginning after a moment: most waits are short, and many begin together."""
        pause = _TELL_SECONDS
        while True:
            await asyncio.sleep(pause)
            if not self._waits:
                return
            log.warning("grading: %s", waiting(Counter(self._waits.values())))
            pause = _TELL_AGAIN_SECONDS

    async def _note(self, run: str, trial: TrialId, error: InfrastructureError) -> None:
        log.warning("grading %s of run %s failed in passing: %s", trial, run, error)
        note = json.dumps({"schema_version": 1, "cause": error.cause, "message": str(error)}).encode()
        with contextlib.suppress(InfrastructureError):
            await self._grading.store.create(keys.grading_try(run, trial, uuid.uuid4().hex), note)


def _problem(status: int, kind: str, message: str) -> web.Response:
    body: dict[str, Any] = {"error": {"type": kind, "message": message}}
    return web.json_response(body, status=status)
