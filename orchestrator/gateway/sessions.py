"""Sessions of MCP clients in one launch. All that a session is for is to tell apart whose request is cancelled."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any

MOST = 64
"""Sessions of one launch; more than the requests that it may have under way, so that one at rest can always be dropped."""


_NAME = re.compile(r"[0-9a-f]{32}")


class Session:
    """One client."""

    def __init__(self, version: str) -> None:
        self.version = version
        """The version of the protocol that was agreed on; empty: with an earlier process."""
        self.running: dict[int | str, asyncio.Task[Any]] = {}
        """Calls under way by the client's number."""


class Sessions:
    """A launch's sessions by id. The one that has rested longest is dropped for a new one; its client is told to begin anew."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.adopts = False
        """Whether sessions that an earlier process has opened go on: all that they held is what ran then."""

    def open(self, version: str) -> str:
        """Return the id of a new session."""
        if len(self._sessions) >= MOST:
            resting = next((name for name, each in self._sessions.items() if not each.running), None)
            if resting is not None:
                del self._sessions[resting]
        name = secrets.token_hex(16)
        self._sessions[name] = Session(version)
        return name

    def find(self, name: str) -> Session | None:
        """Return a session that is in use now; None: there is none of that id."""
        found = self._sessions.pop(name, None)
        if found is None and self.adopts and _NAME.fullmatch(name) and len(self._sessions) < MOST:
            found = Session("")
        if found is not None:
            self._sessions[name] = found
        return found

    def close(self, name: str) -> bool:
        """End a session; its calls under way go on. Returns whether there was one."""
        return self._sessions.pop(name, None) is not None
