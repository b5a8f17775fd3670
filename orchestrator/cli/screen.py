"""The line that moves while a run is followed, and what is said beside it. Always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live

_LINE_EVERY_SECONDS = 10.0


class Screen:
    """A live line on a terminal; where standard error is piped, lines now and then. Use as a context manager."""

    def __init__(self, line: Callable[[], str]) -> None:
        """Take what gives the line of the moment."""
        self._line = line
        self._live: Live | None = None
        self._printed = float("-inf")

    def __enter__(self) -> Self:
        """Begin to show the live line, where there can be one."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, get_renderable=self._line, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def takes_turn(self) -> bool:
        """Return whether a plain line is due now: there is no live one, and the last turn was some seconds ago."""
        if self._live is not None or time.monotonic() - self._printed < _LINE_EVERY_SECONDS:
            return False
        self._printed = time.monotonic()
        return True

    def say(self, text: str) -> None:
        """Say something that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)
