"""Every error this project raises on purpose. The family says what happens next.

::

    OrchestrateError
    ├── SpecError              the user fixes a file or a word; exit code 2, nothing was started
    │   └── RefusedError       what was asked is understood, but this backend or version cannot give it
    │       └── HeldError      another driver holds the run
    ├── InfrastructureError    our failure or the machine's: another launch, never the agent's score
    │   ├── StoreError         the object store did not do what was asked
    │   │   └── NotFoundError  there is no object under that key
    │   ├── SandboxError       a sandbox could not be made, watched or frozen
    │   ├── GatewayError       the gateway or relay did not answer as agreed
    │   ├── GraderError        the grader service could not be reached or failed in passing
    │   └── LeaseLostError     another driver has taken the run; this one writes nothing more
    ├── TrialError             a result: something that the agent did
    ├── SpendingLimitError     the run's limit does not allow the next launch; exit code 3, it can be resumed
    ├── CannotJudgeError       there is no honest answer to the question asked; exit code 4
    ├── StoppedError           a person interrupted; exit code 130
    └── LetGoError             this process was told to end; what it drove goes on without it; exit code 75
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class OrchestrateError(Exception):
    """Root of the tree. ``exit_code`` is what the command line ends with."""

    exit_code: ClassVar[int] = 5


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in one file, located as well as it can be.

    ``line`` and ``column`` count from 1; 0 means that the whole file is meant. ``field`` is a dotted path such as
    ``environment.resources.cpu`` or ``checks[0].run``; it is empty when no field is meant.
    """

    file: str
    line: int = 0
    column: int = 0
    field: str = ""
    message: str = ""

    def __str__(self) -> str:
        place = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class SpecError(OrchestrateError):
    """What a person wrote cannot be used. Carries every problem found, in order of file and line."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(sorted(set(problems)))
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))


class RefusedError(SpecError):
    """What was asked for is understood but cannot be given here. The message names it, the reason and the way out."""


class HeldError(RefusedError):
    """Another driver holds the run."""


class InfrastructureError(OrchestrateError):
    """Our failure, never the agent's. ``cause`` is a short stable word: equal causes are counted together."""

    def __init__(self, message: str, *, cause: str = "infrastructure") -> None:
        super().__init__(message)
        self.cause = cause

    @property
    def spares_none(self) -> bool:
        """Whether anything else that was asked now would fail as well: then it uses up no launch, and sandboxes that can go on do."""
        return False


FOR_A_PERSON = frozenset({"admission_denied", "invalid", "limit_range", "pod_security", "quota_shape", "too_large"})
"""Causes that the next launch would meet again: a cluster refuses what is to run until a person has changed that or its rules."""


class StoreError(InfrastructureError):
    """The object store did not do what was asked."""

    def __init__(self, message: str, *, cause: str = "store") -> None:
        super().__init__(message, cause=cause)

    @property
    def spares_none(self) -> bool:
        """True for a full disk, a service that is down, a right that is missing. False: it is about one object."""
        return self.cause in _DISKS or (self.cause.startswith("store") and self.cause not in _ONE_OBJECT)


_DISKS = frozenset({"bundle_cache", "cache_unwritable", "trajectory_unwritable"})
"""Causes that tell of a disk of ours beside the store."""
_ONE_OBJECT = frozenset({"store_exists", "store_key", "store_name", "store_not_found", "store_size", "store_corrupt"})
"""Causes that tell of one object of the store."""


class NotFoundError(StoreError):
    """There is no object under ``key``."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no object {key!r} in the store", cause="store_not_found")
        self.key = key


class SandboxError(InfrastructureError):
    """A sandbox could not be made, watched or frozen."""

    def __init__(self, message: str, *, cause: str = "sandbox") -> None:
        super().__init__(message, cause=cause)


class GatewayError(InfrastructureError):
    """The gateway or relay did not answer as agreed."""

    def __init__(self, message: str, *, cause: str = "gateway") -> None:
        super().__init__(message, cause=cause)


class GraderError(InfrastructureError):
    """The grader service could not be reached, or failed in a way that may pass."""

    def __init__(self, message: str, *, cause: str = "grader") -> None:
        super().__init__(message, cause=cause)


class LeaseLostError(InfrastructureError):
    """Another driver has taken the run. Whoever gets this writes nothing more for it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, cause="lease_lost")

    @property
    def spares_none(self) -> bool:
        """True: whatever is left to do is the other driver's."""
        return True


class SpendingLimitError(OrchestrateError):
    """What is left of the run's spending limit does not cover what the next launch may cost."""

    exit_code = 3

    def __init__(self, message: str, *, enough_usd: float = 0) -> None:
        super().__init__(message)
        self.enough_usd = enough_usd
        """A limit in US dollars that would cover that launch."""


class TrialError(OrchestrateError):
    """Something that the agent did. It is a result, so it never escapes the spine."""


class CannotJudgeError(OrchestrateError):
    """The question has no honest answer with what is there."""

    exit_code = 4


class StoppedError(OrchestrateError):
    """A person interrupted the work; what was done is kept and can be resumed."""

    exit_code = 130


class LetGoError(OrchestrateError):
    """This process was told to end and has let go of its run: its sandboxes go on, and the next driver takes them over."""

    exit_code = 75


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest valid name, or an empty string when nothing is close."""
    found = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


def near_path(path: Path) -> str:
    """Return ``nearest`` for a path that is not there, among what is beside it: as it would have to be typed."""
    try:
        names = [each.name for each in path.parent.iterdir() if not each.name.startswith(".")]
    except OSError:
        return ""
    found = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f" (did you mean {str(path.parent / found[0])!r}?)" if found else ""
