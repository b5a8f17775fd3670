"""One trial as exports see it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.dataset.rows import TrialRow
from orchestrator.exports.story import Story
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class ExportedTrial:
    """A trial with a sealed trajectory."""

    manifest: RunManifest
    row: TrialRow
    outcome: Outcome
    """The launch that counts."""
    story: Story

    @property
    def passed(self) -> bool | None:
        """Whether it passed; None when it has no result, or was not graded."""
        return {"passed": True, "failed": False, "abstained": False}.get(self.row.graded_as)

    @property
    def message(self) -> str:
        """The agent's last message; empty when it gave no ending."""
        return self.outcome.final.message if self.outcome.final else ""


def in_time(trial: ExportedTrial) -> tuple[float, float]:
    """Return when the trial began and ended, in seconds since 1970, its events included."""
    times = trial.outcome.times
    started = min(value for value in (times.started, trial.story.started or times.started))
    return started, max(times.ended, trial.story.ended, started)
