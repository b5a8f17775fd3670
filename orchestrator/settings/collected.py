"""Values from all places, with the origin of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import Problem

Where = tuple[str, ...]
FLAG = "flag"


@dataclass
class Origin:
    """One place that settings come from."""

    name: str
    """``flag``, a variable's name, or the shown path of the file."""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass
class Collected:
    """Values from all places, the stronger ones last, with the origin of each."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Where, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    wrong: list[Where] = field(default_factory=list)
    """Where the values are that were complained of."""

    def put(self, path: Where, value: Any, origin: Origin) -> None:
        """Set one value."""
        here = self.values
        for part in path[:-1]:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                return
            here = inner
        here[path[-1]] = value
        for known in [each for each in self.origins if each[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin

    def origin(self, path: Where) -> Origin:
        """Return where a value, or the nearest thing around it, was set."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        inner = [origin for known, origin in self.origins.items() if known[: len(path)] == path]
        return inner[0] if inner else Origin("default")

    def complain(self, path: Where, message: str) -> None:
        """Note a problem where the value was set."""
        self.wrong.append(path)
        origin = self.origin(path)
        if origin.name == FLAG:
            self.problems.append(Problem(f"--{'.'.join(path).replace('_', '-')}", message=message))
        else:
            self.problems.append(Problem(origin.name, origin.line, origin.column, ".".join(path), message))

    def drop(self, path: Where) -> None:
        """Forget a value: in a group its entry, else the whole setting."""
        inner = self.values.get(path[0]) if path else None
        top = path[:2] if len(path) > 1 and isinstance(inner, dict) and path[1] in inner else path[:1]
        holder = inner if len(top) == 2 and isinstance(inner, dict) else self.values
        if top:
            holder.pop(top[-1], None)
        else:
            self.values.clear()
        self.origins = {known: origin for known, origin in self.origins.items() if known[: len(top)] != top}

    def get(self, path: Where) -> Any:
        """Return the value at a path, or None when it is absent."""
        here: Any = self.values
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here
