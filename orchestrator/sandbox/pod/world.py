"""What the programs of a pod know about it: places, environment, plan; and how they end. Standard library only."""

# pathlib would double the start-up time, which every trial pays.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import sys

from orchestrator.sandbox.keeper.small import read_json, write_json

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_TERMINATION_BYTES = 4000  # the kubelet keeps 4096

NETWORK_OPEN = 41
CANARY_DEAD = 42
GATEWAY_AWAY = 43
BAD_BUNDLE = 44
UNKNOWN_LAUNCH = 45
ALREADY_BEGUN = 46
PREPARE_FAILED = 49
RELAY_REFUSED = 51
FREEZER_UNKNOWN = 52
FREEZER_FAILED = 59
"""Exit codes; the README says what they mean."""


class PodError(Exception):
    """The program cannot go on. The message is for a person, ``cause`` the short word under which equal failures are counted."""

    def __init__(self, code: int, cause: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.cause = cause


class Places:
    """Where everything is. ``root`` is empty in a pod."""

    def __init__(self, root: str = "") -> None:
        self.ctl = f"{root}/ctl"
        self.log = f"{root}/log"
        self.inputs = f"{root}/inputs"
        self.areas = f"{root}/areas"
        self.programs = f"{root}/opt/orchestrate"
        self.termination = f"{root}/dev/termination-log"


class Environment:
    """Variables of the container. What is not there is named at once, not when it is needed."""

    def __init__(self, values: Mapping[str, str], failed: int) -> None:
        """Take the variables, and the exit code for when they are not what they should be."""
        self._values = values
        self._failed = failed

    def need(self, *names: str) -> list[str]:
        """Return the values. Raises PodError."""
        missing = [name for name in names if not self._values.get(name)]
        if missing:
            raise failure(self._failed, f"the pod has no {', '.join(missing)}")
        return [self._values[name] for name in names]

    def plan(self) -> dict[str, Any]:
        """Return the plan of this launch. Raises PodError."""
        (text,) = self.need("ORCHESTRATE_PLAN")
        try:
            plan = read_json(text)
            version = plan["version"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise failure(self._failed, f"the plan is not one: {text[:200]!r}") from None
        if version != 1:
            message = f"the plan has version {version!r}, this image knows 1: use the pod image of the release that made the pod"
            raise failure(self._failed, message)
        found: dict[str, Any] = plan
        return found


def own_environment(failed: int) -> Environment:
    """Return the environment of this process."""
    return Environment(os.environ, failed)  # noqa: TID251 - a program inside of a pod


def failure(code: int, message: str) -> PodError:
    """Return a failure that has no cause of its own."""
    return PodError(code, "prepare_failed" if code == PREPARE_FAILED else "freezer_failed", message)


def run(program: Callable[[], None], places: Places, failed: int) -> int:
    """Run a program to its end; returns its exit code, and leaves the cause in the container's termination message.

    ``failed`` is the code for what has none of its own.
    """
    try:
        program()
    except PodError as error:
        return leave(places, error)
    except OSError as error:
        message = f"{error.strerror or error} ({error.filename or 'no file'})"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"{type(error).__name__}: {error}"
    except MemoryError:
        message = "the container has not memory enough; raise its limit"
    else:
        return 0
    return leave(places, failure(failed, message))


def leave(places: Places, error: PodError) -> int:
    """Tell what went wrong, to the kubelet and in the log. Returns the exit code."""
    sys.stderr.write(f"{error.cause}: {error}\n")
    text = write_json({"cause": error.cause, "message": str(error)[:2000]}).encode()
    if len(text) > _TERMINATION_BYTES:  # many characters that JSON escapes
        text = write_json({"cause": error.cause, "message": ascii(str(error))[:1500]}).encode()
    try:
        with open(places.termination, "wb") as file:
            file.write(text)
    except OSError as problem:
        sys.stderr.write(f"no termination message: {problem.strerror}\n")
    return error.code
