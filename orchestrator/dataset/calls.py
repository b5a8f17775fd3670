"""What a tool call was for and what came of it, read from foreign text by fixed rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Literal

from orchestrator.stats.trajectory import plain_name

CallOutcome = Literal["ok", "error", "refused", "timeout", "invalid"]

PARSED_CHARS = 256 * 1024
"""Longer arguments and results are not parsed."""
GOAL_CHARS = 200
COMMAND_KEYS = ("command", "cmd", "script", "commands")
"""Names under which tools that run commands take them."""
_SEPARATORS = re.compile(r"&&|\|\||[;|\n]")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*\s+")
_ENDING = re.compile(r"\[(?:exit code (-?\d+)|timed out after [^\]\n]*)\]\s*\Z")
_ERROR_TEXT = re.compile(
    r"\s*(?:[\w.]{0,100}(?:error|exception)\s*:|traceback \(most recent call last\))", re.IGNORECASE
)
_CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")


def arguments_of(value: object) -> tuple[Mapping[str, Any] | None, bool | None]:
    """Return arguments as an object, and whether they are one; None and None for what is too long to look at or was never told."""
    if isinstance(value, Mapping):
        return value, True
    if value is None or (isinstance(value, str) and len(value) > PARSED_CHARS):
        return None, None
    found = _parsed(value) if isinstance(value, str) else None
    return (found, True) if isinstance(found, dict) else (None, False)


def commands_of(arguments: Mapping[str, Any] | None) -> list[str]:
    """Return the single commands of a call that runs some: ``cd x && A=1 pytest -q | tail`` has ``cd x``, ``pytest -q`` and ``tail``."""
    for key in COMMAND_KEYS:
        value = (arguments or {}).get(key)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            # ["bash", "-lc", "text"] runs the text
            value = value[-1] if len(value) == 3 and value[1] in {"-c", "-lc"} else " ".join(value)
        if isinstance(value, str) and len(value) <= PARSED_CHARS:
            pieces = (_SETTING.sub("", piece.strip()) if "=" in piece else piece.strip() for piece in _split(value))
            return [piece for piece in pieces if piece]
    return []


def _split(command: str) -> list[str]:
    return _SEPARATORS.split(command, maxsplit=200)


def goal_of(tool: str | None, commands: Sequence[str]) -> str | None:
    """Return what calls that try the same thing have in common: the tool and, where it runs commands, the program."""
    if tool is None:
        return None
    for command in commands:
        program = PurePosixPath(command.split(maxsplit=1)[0]).name
        if program not in {"cd", "export", "set", "source", ""}:
            return f"{tool} {program}"[:GOAL_CHARS]
    return tool[:GOAL_CHARS]


def is_verifying(tool: str | None, commands: Sequence[str], patterns: Sequence[str]) -> bool | None:
    """Return whether the tool or one of its commands matches a pattern of the task; None when the task has none."""
    if not patterns:
        return None
    names = (tool or "", plain_name(tool or ""))
    return any(fnmatchcase(text, pattern) for text in (*names, *commands) for pattern in patterns)


def outcome_of(content: str | None, is_error: object) -> CallOutcome | None:
    """Return what a result says came of its call; None when it says nothing that can be relied on.

    What the agent marked as an error is one. Else the text decides where it has one of the forms that tools have: it begins with
    ``error:``, with the name of an exception or with a traceback, it is a JSON object with a code of an ended program or an error in it,
    or it ends like the result of our own shell tool.
    """
    if is_error is True:
        return "error"
    if content is None:
        return "ok" if is_error is False else None
    ended = _ENDING.search(content[-200:])
    if ended:
        return "timeout" if ended[1] is None else "ok" if int(ended[1]) == 0 else "error"
    if _ERROR_TEXT.match(content[:200]):
        return "error"
    found = _parsed(content) if content[:1] == "{" and len(content) <= PARSED_CHARS else None
    return "error" if isinstance(found, dict) and _tells_of_error(found) else "ok"


def _tells_of_error(found: Mapping[str, Any]) -> bool:
    if any(found.get(name) is True for name in ("is_error", "isError")) or found.get("error"):
        return True
    return any(isinstance(found.get(name), int) and found[name] != 0 for name in _CODES)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
