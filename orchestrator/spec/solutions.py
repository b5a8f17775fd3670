"""Reference and wrong solutions of a task: who must pass, and who must fail by which check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.errors import Problem, nearest

_FAILS = re.compile(r"#\s*fails:\s*(.*?)\s*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,90}[a-z0-9])?")
_HEAD_BYTES = 64 << 10


def wrong_solutions(
    folder: Path, shown: str, check_ids: Iterable[str], problems: list[Problem]
) -> Mapping[str, tuple[str, ...]]:
    """Return ``wrong/NAME`` to the checks that must fail, in order of name; what is wrong is added to ``problems``.

    ``check_ids`` are the ids of the task's checks and invariants.
    """
    top = folder / "solution"
    if not top.is_dir():
        return {}
    if not (top / "solve.sh").is_file():
        problems.append(Problem(f"{shown}/solution", message="there is no solve.sh, the reference solution"))
    known = list(check_ids)
    return {
        f"wrong/{each.name.removeprefix('wrong-')}": _fails(each, f"{shown}/solution/{each.name}", known, problems)
        for each in sorted(top.glob("wrong-*"))
    }


def _fails(folder: Path, shown: str, known: list[str], problems: list[Problem]) -> tuple[str, ...]:
    if not _NAME.fullmatch(folder.name.removeprefix("wrong-")):
        problems.append(
            Problem(shown, message="the name after wrong- must be lower case letters, digits, dots, dashes")
        )
    script = folder / "solve.sh"
    if not script.is_file():
        problems.append(Problem(shown, message="there is no solve.sh"))
        return ()
    number, line = _first_line(script)
    match = _FAILS.fullmatch(line)
    ids = tuple(part.strip() for part in match[1].split(",") if part.strip()) if match else ()
    if not ids:
        message = "the first line (after #!) must say which checks fail: # fails: CHECK_ID, CHECK_ID"
        problems.append(Problem(f"{shown}/solve.sh", number, 1, message=message))
    for name in ids:
        if name not in known:
            place = re.search(rf"[\s,:]({re.escape(name)})(?=[\s,]|$)", line)
            column = place.start(1) + 1 if place else 1
            message = f"there is no check {name!r}{nearest(name, known)}; the task has {', '.join(dict.fromkeys(known)) or 'none'}"
            problems.append(Problem(f"{shown}/solve.sh", number, column, message=message))
    return ids


def _first_line(script: Path) -> tuple[int, str]:
    with script.open("rb") as file:
        lines = file.read(_HEAD_BYTES).decode(errors="replace").split("\n")
    number = 2 if lines[0].startswith("#!") else 1
    return number, lines[number - 1] if len(lines) >= number else ""
