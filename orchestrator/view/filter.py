"""The filter of the table of trials: ``agent:careful result:failed -check:hidden_tests "two words"``. Pure.

Words with one key are alternatives, different keys must all hold, ``-`` excludes, and a word without a key must stand somewhere in what is
known of the trial. ``*`` stands for anything in the value of a key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.dataset.rows import TrialRow
from orchestrator.errors import SpecError, nearest

Values = Callable[[TrialRow], Iterable[str]]

_WORD = re.compile(r'(?P<no>-?)(?:(?P<key>[a-z_]+):)?(?:"(?P<quoted>[^"]*)"?|(?P<bare>\S+))')
MOST_WORDS = 50
MOST_CHARS = 2_000
HAY_CHARS = 200_000
"""Of what is known of one trial, in characters, so much is looked through."""


def _ending(row: TrialRow) -> tuple[str, ...]:
    return (row.outcome.termination_reason,) if row.outcome else ()


def _findings(row: TrialRow) -> tuple[str, ...]:
    found = [*(row.outcome.findings if row.outcome else ()), *(row.verdict.findings if row.verdict else ())]
    return tuple(dict.fromkeys(finding.type for finding in found))


def _causes(row: TrialRow) -> tuple[str, ...]:
    return tuple(dict.fromkeys(launch.cause or "unknown" for launch in row.launches if launch.outcome_class == "infra"))


KEYS: Mapping[str, Values] = {
    "result": lambda row: (row.result,),
    "agent": lambda row: (row.trial.agent,),
    "ending": _ending,
    "check": lambda row: row.failed_checks,
    "finding": _findings,
    "lost": _causes,
    "model": lambda row: row.outcome.models if row.outcome else (),
    "task": lambda row: (row.trial.task,),
    "kind": lambda row: (row.task.kind,),
    "tier": lambda row: (str(row.task.tier),),
    "expect": lambda row: (row.task.expect,),
}
"""Keys and the values of a trial; ``check`` is a gate that did not hold, ``lost`` why a launch was lost."""
BY_DESIGN = frozenset({"agent", "task", "kind", "tier", "expect"})
"""Keys that were fixed before any trial ran: only a selection by these has a rate that means something."""


@dataclass(frozen=True)
class Word:
    """One word of a filter."""

    text: str
    key: str | None = None
    no: bool = False


@dataclass(frozen=True)
class Filter:
    """What was typed, understood."""

    words: tuple[Word, ...] = ()

    @property
    def is_by_design(self) -> bool:
        """Whether it looks at nothing that came of the trials."""
        return all(word.key in BY_DESIGN for word in self.words)

    def failing(self, row: TrialRow, hay: str) -> set[str]:
        """Return the keys of the conditions that a trial does not meet, ``""`` for text; ``hay`` is all its text in lower case."""
        failed = set()
        for key in {word.key for word in self.words if word.key is not None}:
            values = tuple(KEYS[key](row))
            wanted = [word for word in self.words if word.key == key and not word.no]
            unwanted = [word for word in self.words if word.key == key and word.no]
            if (wanted and not any(_has(values, word.text) for word in wanted)) or any(
                _has(values, word.text) for word in unwanted
            ):
                failed.add(key)
        if any((word.text.lower() in hay) == word.no for word in self.words if word.key is None):
            failed.add("")
        return failed


def _has(values: Sequence[str], wanted: str) -> bool:
    return any(fnmatchcase(value, wanted) if "*" in wanted else value == wanted for value in values)


def parse(text: str) -> Filter:
    """Read a filter. Raises SpecError for a key that there is not, and for one that is too long."""
    if len(text) > MOST_CHARS:
        msg = f"a filter has at most {MOST_CHARS:,} characters, this one has {len(text):,}"
        raise SpecError(msg)
    words = []
    for match in _WORD.finditer(text):
        key = match["key"]
        if key is not None and key not in KEYS:
            msg = f"there is no key {key!r}{nearest(key, KEYS)}; write text that has a colon in quotes; keys: {', '.join(KEYS)}"
            raise SpecError(msg)
        value = match["quoted"] if match["quoted"] is not None else match["bare"]
        if value:
            words.append(Word(value, key, bool(match["no"])))
    if len(words) > MOST_WORDS:
        msg = f"a filter has at most {MOST_WORDS} words, this one has {len(words)}"
        raise SpecError(msg)
    return Filter(tuple(words))


def hay_of(row: TrialRow) -> str:
    """Return everything that is known of a trial as one text in lower case."""
    pieces = [str(row.trial), row.result, row.task.kind]
    for launch in row.launches:
        pieces += [launch.termination_reason, launch.cause or "", launch.error or "", *launch.models]
        pieces += [f"{finding.type} {finding.detail}" for finding in launch.findings]
        if launch.final:
            pieces += [launch.final.message, *launch.final.escalation.values()]
    if row.verdict:
        pieces += [f"{finding.type} {finding.detail}" for finding in row.verdict.findings]
        pieces += [row.verdict.error.message] if row.verdict.error else []
        for check in (*row.verdict.checks, *row.verdict.invariants):
            pieces += [check.id, check.type, str(check.actual), *check.evidence]
    return "\n".join(pieces)[:HAY_CHARS].lower()


def facets(found: Sequence[tuple[TrialRow, set[str]]]) -> dict[str, dict[str, int]]:
    """Return for each key how many trials each of its values would leave, the other conditions being kept; the most first.

    ``found`` holds trials with the conditions that they fail.
    """
    every: dict[str, dict[str, int]] = {}
    for key, values in KEYS.items():
        counted = Counter(value for row, failed in found if failed <= {key} for value in dict.fromkeys(values(row)))
        every[key] = dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
    return every
