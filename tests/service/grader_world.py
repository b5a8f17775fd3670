"""A store with one committed trial, built by hand: tests say what the agent got, what it left, and how it is checked."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
import textwrap
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grader_service.checks.case import Tools
from grader_service.cluster.checker import CheckerChildren
from grader_service.grade import Grading, grade
from grader_service.local.limited import SandboxedChildren
from grader_service.local.pairs import LocalPairs
from grader_service.programs import Programs, lay_programs
from grader_service.settings import GraderSettings
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.state import Entry, FinalAnswer, FrozenState
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.spec.agent import Agent
from orchestrator.spec.bundle import Bundle, Item, task_json
from orchestrator.spec.task import Task
from orchestrator.storage.bundles import BundleCache, publish
from orchestrator.storage.file import FileStore

Files = dict[str, str | bytes]
TRIAL = TrialId("work", "solver", 1)
RUN = "r1"


def encode(text: str | bytes) -> bytes:
    return textwrap.dedent(text).encode() if isinstance(text, str) else text


def bundle(files: Files, prefix: str = "") -> list[Item]:
    return [Item(path=prefix + path, data=encode(data)) for path, data in files.items()]


def entries_and_tar(before: Files, after: Files, links: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """Freeze by hand: what the freezer writes for a workspace that was ``before`` and is ``after``."""
    links = links or {}
    entries: dict[str, Entry] = {}
    changed: list[tuple[str, bytes]] = []
    folders = {"/".join(path.split("/")[:n]) for path in {**after, **links} for n in range(1, path.count("/") + 1)}
    for folder in folders:
        known = any(path.startswith(folder + "/") for path in before)
        entries[folder] = Entry(
            path=f"workspace/{folder}", type="dir", mode=0o755, origin="pristine" if known else "added"
        )
    for path, raw in before.items():
        if path not in after and path not in links:
            entries[path] = Entry(
                path=f"workspace/{path}", type="file", mode=0o644, size=len(encode(raw)), origin="removed"
            )
    for path, raw in after.items():
        data = encode(raw)
        origin = "added" if path not in before else "pristine" if encode(before[path]) == data else "changed"
        digest = hashlib.sha256(data).hexdigest()
        entries[path] = Entry(
            path=f"workspace/{path}", type="file", mode=0o644, size=len(data), sha256=digest, origin=origin
        )
        if origin != "pristine":
            changed.append((path, data))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(changed):
            member = tarfile.TarInfo(f"workspace/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for path, target in sorted(links.items()):
            entries[path] = Entry(
                path=f"workspace/{path}",
                type="symlink",
                mode=0o777,
                target=target,
                origin="changed" if path in before else "added",
            )
            member = tarfile.TarInfo(f"workspace/{path}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    lines = [entries[path].to_bytes() for path in sorted(entries, key=str.encode)]
    return b"".join(line + b"\n" for line in lines), out.getvalue()


class GraderWorld:
    """One store, one run, one trial."""

    def __init__(self, folder: Path, programs: Programs | None = None) -> None:
        self.folder = folder
        self.programs = programs
        self.store_folder = folder / "store"
        self.store = FileStore(self.store_folder)
        self.before: Files = {}
        self.database: bytes | None = None
        self.checker: Path | None = None
        """Socket of the checker that parses what was left; None: sandboxes do."""

    def tools(self, **settings: Any) -> Tools:
        programs = self.programs or lay_programs(self.folder / "programs")
        own = BubblewrapBackend()
        return Tools(
            limited=CheckerChildren(str(self.checker)) if self.checker else SandboxedChildren(own, programs),
            pairs=LocalPairs(own, None),
            programs=programs,
            settings=GraderSettings(**settings),
        )

    def grading(self, **settings: Any) -> Grading:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        if self.checker:
            self.folder.chmod(0o755)
        return Grading(
            store=self.store,
            bundles=BundleCache(self.store, self.folder / "bundles"),
            tools=self.tools(**settings),
            folder=scratch,
            version="test",
            shared=self.checker is not None,
        )

    def task(
        self,
        before: Files,
        checks: list[dict[str, Any]],
        *,
        invariants: Any = (),
        hidden: Files | None = None,
        seed: str | None = None,
        **fields: Any,
    ) -> None:
        """Publish the task and the run."""
        self.before = before
        raw = {"id": "work", "instruction": "work", "checks": checks, "invariants": list(invariants), **fields}
        raw.setdefault("environment", {"requires": ["python3"]})
        task = Task.model_validate_json(json.dumps(raw))
        world = [] if seed is None else [Item(path="world/seed.sql", data=seed.encode())]
        graders = Bundle.of([Item(path="task.json", data=task_json(task)), *bundle(hidden or {}, "hidden/"), *world])
        sandbox = Bundle.of([*bundle(before, "workspace/"), Item(path="task/instruction.md", data=b"work")])
        asyncio.run(self._publish(task, graders, sandbox))

    async def _publish(self, task: Task, graders: Bundle, sandbox: Bundle) -> None:
        digests = {
            "graders": await publish(self.store, "graders", graders),
            "sandbox": await publish(self.store, "sandbox", sandbox),
        }
        planned = ManifestTask(
            id=task.id, version=1, digest="sha256:0", kind=task.kind, tier=1, expect=task.expect, environment=task.environment,
            budgets=task.budgets, samples=1, bundles=Bundles(world="sha256:0", **digests),
        )  # fmt: skip
        agent = ManifestAgent(name="solver", digest="sha256:0", agent=Agent(type="nop"))
        manifest = RunManifest(
            run=RUN, created_at=datetime.now(UTC), orchestrate_version="0", code=Code(), suite="s", suite_digest="sha256:0",
            metric="pass_rate", k=1, tasks=(planned,), agents=(agent,), seed=1, backend="bubblewrap", pool="inline",
        )  # fmt: skip
        await self.store.create(keys.manifest(RUN), manifest.to_bytes())

    def left(
        self,
        after: Files | None,
        *,
        links: dict[str, str] | None = None,
        launch: int = 1,
        world: bytes | None = None,
        **fields: Any,
    ) -> None:
        """Commit what the agent left: its workspace, or None for a launch without a state, and the database of its world."""
        blobs = None if after is None else entries_and_tar(self.before, after, links)
        self.database = world
        self.committed(blobs, launch=launch, **fields)

    def committed(
        self, blobs: tuple[bytes, bytes] | None, *, launch: int = 1, final: FinalAnswer | None = None, **fields: Any
    ) -> None:
        asyncio.run(self._commit(blobs, launch, final, fields))

    async def _commit(
        self, blobs: tuple[bytes, bytes] | None, launch: int, final: FinalAnswer | None, fields: dict[str, Any]
    ) -> None:
        state = (
            None if blobs is None else FrozenState(entries=await self._put(blobs[0]), changes=await self._put(blobs[1]))
        )
        if state is not None and self.database is not None:
            state = state.model_copy(update={"world": await self._put(self.database)})
        known: dict[str, Any] = {"outcome_class": "result", "termination_reason": "completed"} | fields
        outcome = Outcome(
            run=RUN, trial=str(TRIAL), launch=launch, state=state, usage=NOTHING_USED, writer_id="test", final=final,
            ended_as=final.status if final else None, times=Times(started=0, ended=1, working_s=1, waiting_s=0), **known,
        )  # fmt: skip
        await self.store.create(keys.outcome(RUN, TRIAL, launch), outcome.to_bytes())

    async def _put(self, data: bytes) -> BlobRef:
        return await self.store.put_blob(keys.blob(RUN, uuid.uuid4().hex), data)

    def grade(self, **settings: Any) -> Verdict:
        """Grade the trial in this process, with real sandboxes."""
        return asyncio.run(grade(self.grading(**settings), RUN, TRIAL))

    def stored_verdicts(self) -> list[str]:
        return asyncio.run(self.store.list(keys.verdicts(RUN, TRIAL)))


def lines(verdict: Verdict) -> str:
    """Return everything a verdict says, for assertions on its words."""
    return json.dumps(verdict.model_dump(mode="json"), ensure_ascii=False)
