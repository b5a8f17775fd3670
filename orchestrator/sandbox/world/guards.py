"""What stands between a call and its effect: planted failures, rates, preconditions, approvals."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from typing import Any

from orchestrator.sandbox.world.database import Database
from orchestrator.sandbox.world.functions import CallError

_LONGEST = 200
"""Characters of an argument that are shown in a message."""
_NEEDS_APPROVAL = "this needs an approval: call request_approval with the same tool and arguments first; one approval is good for one call"


def filled(text: str, arguments: dict[str, Any]) -> str:
    """Return a text with ``{name}`` replaced by the arguments."""

    def value(match: re.Match[str]) -> str:
        found = arguments.get(match[1])
        return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))[:_LONGEST]

    return re.sub(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text)


def holds(database: Database, sql: str, values: dict[str, Any]) -> bool:
    """Return whether a question gives a row whose first value is neither null nor 0 nor an empty text."""
    rows = database.read(sql, values)
    return bool(rows) and bool(next(iter(rows[0].values()), None))


def planted(tool: dict[str, Any], number: int, seed: int) -> dict[str, Any] | None:
    """Return the failure that is planted for a call."""
    for place, fault in enumerate(tool["faults"]):
        if number in fault["calls"]:
            return dict(fault)
        share = fault["share"]
        chance = random.Random(f"{seed}:{tool['name']}:{place}:{number}").random()  # noqa: S311 - repeatable on purpose
        if share is not None and chance < share:
            return dict(fault)
    return None


def failure(fault: dict[str, Any], arguments: dict[str, Any]) -> CallError:
    """Return a planted failure as the error of a call."""
    return CallError(fault["error"], filled(fault["message"], arguments), fault["status"])


def check_rate(database: Database, tool: dict[str, Any]) -> None:
    """Count a call, and refuse it when there were too many. Raises CallError."""
    rate = tool["rate"]
    if rate is None:
        return
    now = time.time()
    name = tool["name"]
    database.own("delete from _rates where tool = ? and at <= ?", name, now - rate["seconds"])
    times = [row[0] for row in database.own("select at from _rates where tool = ? order by at", name)]
    if len(times) >= rate["calls"]:
        wait = max(0.0, times[-rate["calls"]] + rate["seconds"] - now)
        msg = f"{name} takes {rate['calls']} calls in {rate['seconds']:g} s; try again in {wait:.1f} s"
        raise CallError("rate_limited", msg, 429, round(wait, 3))
    database.own("insert into _rates (tool, at) values (?, ?)", name, now)


def check_requires(database: Database, tool: dict[str, Any], values: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Refuse a call for which a precondition does not hold. Raises CallError."""
    for condition in tool["requires"]:
        if not holds(database, condition["sql"], values):
            raise CallError(condition["error"], filled(condition["message"], arguments))


def approve(
    database: Database, tool: dict[str, Any], values: dict[str, Any], arguments: dict[str, Any], request: str
) -> bool:
    """Use up an approval when one is needed, and return whether one was. Raises CallError without one."""
    needed = tool["requires_approval"]
    if needed is False or (isinstance(needed, dict) and not holds(database, needed["when"], values)):
        return False
    found = database.own(
        "select id from _approvals where tool = ? and arguments_sha256 = ? and said = 'granted' and used_by is null order by id limit 1",
        tool["name"],
        fingerprint(arguments),
    )
    if not found:
        raise CallError("approval_required", _NEEDS_APPROVAL, 403)
    database.own("update _approvals set used_by = ? where id = ?", request, found[0][0])
    return True


def fingerprint(arguments: dict[str, Any]) -> str:
    """Return the digest of arguments, whatever their order."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def decide(
    database: Database, rules: list[dict[str, Any]], tool: str, values: dict[str, Any], asked: dict[str, Any]
) -> dict[str, Any]:
    """Return what is said to ``request_approval``, and keep it. ``values``: what SQL sees of the call that is asked for."""
    said, message = "denied", "nobody approves this"
    for rule in rules:
        if rule["tool"] == tool and (rule["when"] is None or holds(database, rule["when"], values)):
            said, message = rule["say"], filled(rule["message"], asked["arguments"])
            break
    database.own(
        "insert into _approvals (tool, arguments_sha256, reason, said, message) values (?, ?, ?, ?, ?)",
        tool,
        fingerprint(asked["arguments"]),
        asked["reason"],
        said,
        message,
    )
    return {"decision": said, "message": message}
