"""How a run looks while it runs: one live line on a terminal, a line now and then when piped. Always on standard error."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import get_args

from orchestrator.cli.screen import Screen
from orchestrator.interfaces import Phase, Spending, TrialEnd
from orchestrator.interfaces.waits import waiting
from orchestrator.records.ids import TrialId
from orchestrator.records.verdict import TrialResult

_LONG_SECONDS = 120
"""From here on the time that passed is shown in minutes."""
_SHOWN: tuple[Phase, ...] = ("starting", "running", "freezing", "grading")


class Progress:
    """An observer that shows counts by state, spend and the time that is left.

    ``spent`` is what the run had cost before this process drove it, ``limit`` what it may cost, both in nano USD.
    """

    def __init__(self, *, spent: int = 0, limit: int | None = None) -> None:
        self._total = 0
        self._before = 0
        """Trials that had ended when this process began."""
        self._last = ""
        self._started = time.monotonic()
        self._phases: dict[TrialId, Phase] = {}
        self._waits: dict[TrialId, str] = {}
        self._results: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._spent = spent
        self._limit = limit
        self._ended_nano_usd = 0
        """Cost of the trials that ended."""
        self._seen = Spending()
        """What the gateway has counted: running and lost launches too. A gateway that was started anew has forgotten."""
        self._screen = Screen(self.line)

    def __enter__(self) -> Progress:
        """Begin to show."""
        self._screen.__enter__()
        self._screen.takes_turn()  # a run that is over in a moment has its last line alone
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing; the last state stays as one line."""
        self._screen.__exit__(kind, error, trace)
        self._print()

    def begins(self, planned: int, before: int) -> None:
        """A run of that many trials is driven from now on."""
        self._total, self._before = planned, before

    def waiting_for(self, driver: str) -> None:
        """Say that an earlier driver is given time to show that it lives."""
        self._screen.say(f"waiting to see whether {driver}, which drove this run, still lives")

    def store_is_silent(self, seconds: float) -> None:
        """Say that the store has not answered for so long, and that this is waited for."""
        self._screen.say(
            f"the store has not answered for {seconds:.0f} s; what runs goes on, and is kept when it answers again"
        )

    def rows_not_staged(self, why: str) -> None:
        """Say that rows could not be written ahead."""
        self._screen.say(
            f"warning: some rows for the dataset could not be written ahead and are made at the end instead: {why}"
        )

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """A trial entered a phase."""
        self._phases[trial] = phase
        self._waits.pop(trial, None)

    def waits(self, trial: TrialId, why: str) -> None:
        """A trial does not get on, or does again."""
        if why:
            self._waits[trial] = why
        else:
            self._waits.pop(trial, None)
        self._print_now_and_then()

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Tell the first failure of each cause in full, count the others."""
        self._failed[cause] += 1
        if self._failed[cause] == 1:
            self._screen.say(f"{trial} launch {launch} failed on our side ({cause}): {message}")

    def ended(self, end: TrialEnd) -> None:
        """A trial is committed, and graded if it could be."""
        self._phases.pop(end.trial, None)
        self._waits.pop(end.trial, None)
        word = end.outcome.outcome_class if end.verdict is None else end.verdict.result
        self._results["not graded" if word == "result" else word] += 1
        self._ended_nano_usd += end.outcome.usage.cost_nano_usd or 0
        self._print_now_and_then()

    def spending(self, seen: Spending) -> None:
        """Take what the gateway has counted so far."""
        self._seen = seen
        self._print_now_and_then()

    def _print_now_and_then(self) -> None:
        if self._screen.takes_turn():
            self._print()

    def line(self) -> str:
        """Return the state in one line."""
        from orchestrator.report.text import duration

        done = sum(self._results.values())
        left = self._total - self._before - done
        spent = time.monotonic() - self._started
        times = [f"{spent:.0f} s" if spent < _LONG_SECONDS else f"{spent // 60:.0f} min {spent % 60:02.0f} s"]
        if done and left and not 0 < len(self._phases) <= len(self._waits):
            times.append(f"about {duration(spent / done * left)} left")
        return "  ".join((*self._counts(done), *times, *self._waiting()))

    def _waiting(self) -> list[str]:
        return [waiting(Counter(self._waits.values()))] if self._waits else []

    def _counts(self, done: int) -> list[str]:
        parts = [f"{self._before + done}/{self._total}"]
        if self._before:
            parts.append(f"{self._before} before")
        words = [*get_args(TrialResult), *sorted(set(self._results) - set(get_args(TrialResult)))]
        parts += [f"{self._results[word]} {word}" for word in words if self._results[word]]
        running = Counter(self._phases.values())
        parts += [f"{running[phase]} {phase}" for phase in _SHOWN if running[phase]]
        if self._failed:
            parts.append(f"{sum(self._failed.values())} failed launches ({', '.join(sorted(self._failed))})")
        if self._seen.running and self._seen.steps:
            parts.append(f"{self._seen.steps:,} model responses")
        return parts + self._money()

    def _money(self) -> list[str]:
        from orchestrator.plan.cost import dollars

        spent = self._spent + max(self._ended_nano_usd, self._seen.cost_nano_usd)
        if self._limit is not None:
            return [f"{dollars(spent)} of {dollars(self._limit)}"]
        return [dollars(spent)] if spent else []

    def _print(self) -> None:
        counts = "  ".join((*self._counts(sum(self._results.values())), *self._waiting()))
        if (self._results or self._seen.steps or self._waits) and counts != self._last:
            self._last = counts
            print(self.line(), file=sys.stderr, flush=True)
