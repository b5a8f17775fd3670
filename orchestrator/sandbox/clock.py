"""The frozen clock of a task: what programs in its sandbox are told, and what they see where a library can stand before the system's.

The clock begins at ``environment.now`` when a launch begins, and goes on from there at the speed of the real one, so that sleeps and
time-outs work. What counts seconds without a date, the monotonic clock, is left alone. Times of files are the real ones, programs
that are linked statically see the real clock, and so does whoever takes the library away: the finding ``clock_leak`` tells when that shows.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

INSIDE = "/run/sandbox/libfaketime.so.1"
"""Where a sandbox has the library."""
_PACKAGED = "vendor/libfaketime/src/libfaketime.so.1"
_PLACES = (
    "usr/lib/*/faketime/libfaketime.so.1",
    "usr/lib*/faketime/libfaketime.so.1",
    "usr/local/lib/faketime/libfaketime.so.1",
)
_AGO = 10**8
"""Seconds by which the clock of the trial program goes after the real one."""
_TRIAL = (
    "import subprocess, threading, time\n"
    "time.sleep(0.001); threading.Event().wait(0.001)\n"
    "print(int(time.time()), subprocess.run(['date', '+%s'], capture_output=True, text=True, check=True, timeout=5).stdout.strip())"
)
_TRIAL_SECONDS = 10


def told(now: datetime) -> dict[str, str]:
    """Return the variables that say what time it is: ``ORCHESTRATE_NOW`` (RFC 3339) and ``SOURCE_DATE_EPOCH`` (seconds since 1970)."""
    text = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"ORCHESTRATE_NOW": text, "SOURCE_DATE_EPOCH": str(int(now.timestamp()))}


def shown(offset: float, library: str = INSIDE) -> Mapping[str, str]:
    """Return the variables by which dynamically linked programs see another clock; ``offset``: seconds from the real one.

    It is rounded up: no program sees a time before that at which the clock begins.
    """
    return {"LD_PRELOAD": library, "FAKETIME": f"{math.ceil(offset):+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def library(real: float) -> Path | None:
    """Return a libfaketime of this machine that works, tried on a small program; None: there is none. ``real``: seconds since 1970.

    Some of those that systems bring break sleeping in programs of today, so each is tried.
    """
    return next((path for path in _candidates() if _works(path, real)), None)


def _candidates() -> Iterator[Path]:
    package = find_spec("libfaketime")  # the extra ``clock``; it is not imported: its module would begin to fake
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / _PACKAGED
    for place in _PLACES:
        yield from sorted(Path("/").glob(place))


def _works(path: Path, real: float) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRIAL],
            env={"PATH": "/usr/bin:/bin", **shown(-_AGO, str(path))},
            capture_output=True,
            text=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    times = [int(word) for word in done.stdout.split() if word.isdecimal()]
    return not done.stderr and len(times) == 2 and all(abs(each - (real - _AGO)) < 2 * _TRIAL_SECONDS for each in times)
