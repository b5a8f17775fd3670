"""Names of runs, trials and launches."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_TRIAL = re.compile(r"([a-z0-9][a-z0-9._-]*)@([a-z0-9][a-z0-9._/-]*):([1-9][0-9]*)")


@dataclass(frozen=True, order=True)
class TrialId:
    """One sample of one task by one agent: ``TASK@AGENT:N``. Samples count from 1."""

    task: str
    agent: str
    sample: int

    def __str__(self) -> str:
        return f"{self.task}@{self.agent}:{self.sample}"

    @classmethod
    def parse(cls, text: str) -> TrialId:
        """Read ``TASK@AGENT:N``. Raises ValueError when the text has another form."""
        match = _TRIAL.fullmatch(text)
        if match is None:
            msg = f"{text!r} is not a trial; write TASK@AGENT:N, for example fix-login@careful:1"
            raise ValueError(msg)
        return cls(match[1], match[2], int(match[3]))


def launch_id(run: str, trial: TrialId | str, launch: int) -> str:
    """Return the short name of a launch, 24 hex digits, from its content: making it twice gives the same name."""
    return hashlib.sha256(f"{run}\0{trial}\0{launch}".encode()).hexdigest()[:24]


def trial_seed(run_seed: int, trial: TrialId) -> int:
    """Return the trial's own seed, 0 to 2**63 - 1, from the run's seed and the trial's name."""
    return int.from_bytes(hashlib.sha256(f"orchestrate/seed/v1\0{run_seed}\0{trial}".encode()).digest()[:8], "big") >> 1
