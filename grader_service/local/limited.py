"""Limited children in sandboxes of this machine."""

from __future__ import annotations

import json
import sys
from typing import Any

from grader_service.checks.case import LimitedEnd, LimitedJob
from grader_service.programs import LIB, PACKAGES, Programs, packages_of
from orchestrator.interfaces import Input, SandboxBackend, SandboxLimits, SandboxSpec

_PROGRAM = f"import sys; sys.path.insert(0, {LIB!r}); from grader_service.child.main import main; main()"
_STATE, _PRISTINE, _HIDDEN = "/grader/state", "/grader/pristine", "/grader/hidden"


class SandboxedChildren:
    """Implements ``LimitedChildren``: each is one sandbox without a network."""

    def __init__(self, backend: SandboxBackend, programs: Programs) -> None:
        self._backend = backend
        self._programs = programs

    async def run(self, job: LimitedJob) -> LimitedEnd:
        """Run one limited child to its end. Raises SandboxError."""
        async with self._backend.open(self._spec(job)) as sandbox:
            ending = await sandbox.ended()
            frozen = await sandbox.freeze()
        return LimitedEnd(ending=ending, answer=frozen.final, output=frozen.output)

    def _spec(self, job: LimitedJob) -> SandboxSpec:
        told: dict[str, Any] = {
            "state": _STATE,
            "pristine": _PRISTINE,
            "hidden": _HIDDEN,
            "root": "/workspace/frozen",
            "answer": "/output/final.json",
            "limit_bytes": job.state_bytes,
            "packages": [PACKAGES] if job.packages else [],
            "checks": list(job.checks),
            "lay": job.lay,
            "seconds": job.check_seconds,
            "memory_bytes": job.check_memory_bytes,
        }
        inputs = [Input(source=self._programs.lib, target=LIB), Input(source=job.state, target=_STATE)]
        if job.pristine is not None:
            inputs.append(Input(source=job.pristine, target=_PRISTINE))
        if job.hidden is not None:
            inputs.append(Input(source=job.hidden, target=_HIDDEN))
        return SandboxSpec(
            name=job.name,
            command=("python3", "-I", "-S", "-c", _PROGRAM),
            limits=SandboxLimits(
                cpu=1,
                memory_bytes=2 * job.check_memory_bytes,
                disk_bytes=job.disk_bytes,
                processes=32,
                wall_seconds=job.wall_seconds,
                output_bytes=8192,
            ),
            stdin=json.dumps(told).encode(),
            inputs=tuple(inputs),
            requires=("python3",),
            packages=packages_of(job.packages, sys.path),
        )
