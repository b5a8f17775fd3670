"""pytest plugin of the runner: writes what became of each test to ``/output/final.json`` (zlib, JSON).

``{"exit_status": n, "tests": [[id, outcome, message], …], "errors": [[file, message], …]}``. Ids are relative to ``hidden/``. An outcome is
``passed`` only when setup, call and teardown passed and nothing was expected to fail.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

_RESULTS = Path("/output/final.json")
_MESSAGES = 40
_MESSAGE = 400
_REPORT_BYTES = 60 << 10


class Results:
    """Collects outcomes over one session."""

    def __init__(self, hidden: Path) -> None:
        self._hidden = hidden
        self._ids: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}
        self._messages: dict[str, str] = {}
        self._errors: list[list[str]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the id of each test. The same id twice is no test that could pass."""
        for item in session.items:
            _, _, rest = item.nodeid.partition("::")
            self._ids[item.nodeid] = f"{self._relative(item.path)}::{rest}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test: the worst one counts."""
        name = self._ids.get(report.nodeid, report.nodeid)
        before = self._outcomes.get(name)
        outcome = _outcome(report)
        if report.when == "setup" and before is not None:
            outcome = "duplicate"
        if before in {None, "passed"} or outcome == "duplicate":
            self._outcomes[name] = outcome
        if outcome != "passed" and name not in self._messages:
            self._messages[name] = _message(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected."""
        if report.failed:
            self._errors.append([report.nodeid, _message(report)])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write everything, added to what an earlier session of the same command wrote."""
        packed = self._packed(int(exitstatus), _MESSAGES)
        if len(packed) > _REPORT_BYTES:  # messages quote the agent's work; their size decides nothing
            packed = self._packed(int(exitstatus), 0)
        fresh = _RESULTS.with_suffix(".new")
        fresh.write_bytes(packed)
        fresh.replace(_RESULTS)

    def _packed(self, exitstatus: int, messages: int) -> bytes:
        tests = [
            [name, outcome, self._messages.get(name, "") if index < messages else ""]
            for index, (name, outcome) in enumerate(
                sorted(self._outcomes.items(), key=lambda pair: pair[1] == "passed")
            )
        ]
        errors = [[file, message if messages else ""] for file, message in self._errors[:_MESSAGES]]
        earlier: dict[str, Any] = (
            json.loads(zlib.decompress(_RESULTS.read_bytes()))
            if _RESULTS.exists()
            else {"tests": [], "errors": [], "exit_status": 0}
        )
        answer = {
            "exit_status": exitstatus or earlier["exit_status"],
            "tests": earlier["tests"] + tests,
            "errors": earlier["errors"] + errors,
        }
        # A message can carry surrogates that stand alone, which strict readers of JSON refuse.
        return zlib.compress(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))

    def _relative(self, path: Path) -> str:
        try:
            return path.relative_to(self._hidden).as_posix()
        except ValueError:
            return path.as_posix()


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.passed:
        return "passed"
    if report.skipped:
        return "skipped"
    return "failed" if report.when == "call" else "error"


def _message(report: Any) -> str:
    found = report.longrepr
    if isinstance(found, tuple):  # of a skipped test: file, line, reason
        return str(found[2])[:_MESSAGE]
    crash = getattr(found, "reprcrash", None)
    text = str(crash.message) if crash is not None else _cause(str(found or ""))
    return text[:_MESSAGE]


def _cause(text: str) -> str:
    """Return the last line of a text that says why; pytest marks those with an ``E``."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line[2:] for line in lines if line.startswith("E ")]
    return next(iter((marked or lines)[-1:]), "").strip()


def pytest_configure(config: pytest.Config) -> None:
    """Register the collector. Hidden files lie in ``hidden/`` of the folder that the command started in."""
    config.pluginmanager.register(Results(config.invocation_params.dir / "hidden"), "orchestrate-results")
