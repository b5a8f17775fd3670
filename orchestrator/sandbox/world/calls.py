"""One call of a world's tool: everything that it does is one transaction with the row that tells of it."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

from orchestrator.sandbox.world import guards, pages
from orchestrator.sandbox.world.database import Database, TooSlowError
from orchestrator.sandbox.world.functions import BrokenError, CallError, World, check_answer

TABLES = """\
create table _calls (
    id integer primary key, request text not null unique, tool text not null, caller text not null, number integer not null,
    arguments text not null, outcome text not null, error text, answer text not null, effect integer not null,
    irreversible integer not null, approved integer not null, at text);
create table _outbox (
    id integer primary key, request text not null, tool text not null, recipient text not null, text text not null,
    payload text not null, at text);
create table _approvals (
    id integer primary key, tool text not null, arguments_sha256 text not null, reason text not null, said text not null,
    message text not null, used_by text);
create table _rates (tool text not null, at real not null);
"""
"""The world's own tables."""

_MOST_ANSWER = 1 << 20
_WIDEST = 1 << 63
READY_ARGUMENTS = {
    "post_message": ("channel", "text"),
    "send_email": ("to", "subject", "text"),
    "refund": ("reference", "amount", "currency", "reason"),
}
"""Arguments of the ready-made tools. The first says whom it goes to; the last is kept as the text."""


class Calls:
    """Takes the calls of one launch."""

    def __init__(self, database: Database, world: dict[str, Any], seed: int, functions: dict[str, Any]) -> None:
        self._database = database
        self._seed = seed
        self._functions = functions
        self._seconds = world["limits"]["seconds"]
        self._rules = world["approvals"]
        self._tools: dict[str, dict[str, Any]] = {tool["name"]: tool for tool in (*world["tools"], *world["outbox"])}

    def recall(self, request: str) -> dict[str, Any] | None:
        """Return the answer that a request got; None: it had no effect. Raises sqlite3.Error."""
        found = self._database.own("select answer from _calls where request = ?", request)
        return dict(json.loads(found[0][0])) if found else None

    def take(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked, unless that request was answered before, and return the answer. Raises sqlite3.Error for a broken database."""
        known = self.recall(order["request"])
        if known is not None:
            return known
        self._database.give(self._seconds)
        self._database.own("begin immediate")
        answer, approved = self._answered(order)
        effect = approved is not None
        try:
            self._log(order, answer, effect=effect, approved=bool(approved))
            self._database.own("commit")
        except sqlite3.Error as error:  # no room for the row, or nothing behind a deferred key: so nothing has happened
            if self._database.in_transaction:
                self._database.own("rollback")
            answer = _refused(error) if isinstance(error, sqlite3.IntegrityError) else _broken(error)
            self._database.make_room()
            self._database.own("begin immediate")
            self._log(order, answer, effect=False, approved=False)
            self._database.own("commit")
        return answer

    @property
    def last(self) -> int:
        """The greatest number of a request ``call-N`` that was answered; 0: none was. Calls that nothing came of left none."""
        numbered = "select max(cast(substr(request, 6) as integer)) from _calls where request like 'call-%'"
        return int(self._database.own(numbered)[0][0] or 0)

    def _answered(self, order: dict[str, Any]) -> tuple[dict[str, Any], bool | None]:
        """Return the answer, and whether an approval was used; None: nothing has happened."""
        tool = self._tools.get(order["tool"])
        try:
            if tool is not None:
                guards.check_rate(self._database, tool)  # calls that fail count, too
        except CallError as error:
            return _error(error), None
        self._database.own("savepoint effect")
        try:
            return self._done(order)
        except CallError as error:
            answer = _error(error)
        except TooSlowError:
            answer = {
                "outcome": "timeout",
                "kind": "too_slow",
                "message": f"the call took more than {self._seconds:g} s",
                "status": 504,
            }
        except sqlite3.IntegrityError as error:
            answer = _refused(error)
        except (sqlite3.Error, BrokenError, MemoryError, RecursionError, ArithmeticError, LookupError) as error:
            answer = _broken(error)
        if self._database.in_transaction:  # a database that is full has rolled back by itself
            self._database.own("rollback to effect")
        else:
            self._database.make_room()
            self._database.own("begin immediate")
        return answer, None

    def _done(self, order: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        name, arguments, request = order["tool"], order["arguments"], order["request"]
        number = self._database.own("select count(*) from _calls where tool = ?", name)[0][0] + 1
        if name == "request_approval":
            return {"outcome": "ok", "data": self._approval(arguments)}, False
        tool = self._tools[name]
        values = self._values(tool, arguments, number)
        self._database.random.seed(f"{self._seed}:{name}:{number}")
        fault = guards.planted(tool, number, self._seed)
        if fault is not None and fault["effect"] == "none":
            raise guards.failure(fault, arguments)
        guards.check_requires(self._database, tool, values, arguments)
        approved = guards.approve(self._database, tool, values, arguments, request)
        data = self._effect(tool, values, arguments, order["caller"])
        self._message(tool, arguments, request)
        answer = {"outcome": "ok", "data": data} if fault is None else _error(guards.failure(fault, arguments))
        size = len(_json(answer))
        if size > _MOST_ANSWER:
            msg = f"the answer has {size} bytes, at most {_MOST_ANSWER} are taken"
            raise BrokenError(msg)
        return answer, approved

    def _approval(self, arguments: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(arguments["tool"])
        if tool is None or tool["requires_approval"] is False:
            msg = f"{str(arguments['tool'])[:100]!r} is no tool that needs an approval"
            raise CallError("no_approval_needed", msg, 400)
        values = self._values(tool, arguments["arguments"], 0)
        return guards.decide(self._database, self._rules, tool["name"], values, arguments)

    def _values(self, tool: dict[str, Any], arguments: dict[str, Any], number: int) -> dict[str, Any]:
        """Return what SQL sees. Raises CallError for a value that no database takes."""
        named = tool.get("arguments", {}).get("properties", {})
        values: dict[str, Any] = dict.fromkeys([*named, *READY_ARGUMENTS.get(tool["name"], ())])
        for name, value in arguments.items():
            values[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
            _check_value(name, value)
        return values | {"now": self._database.now, "call": number}

    def _effect(
        self, tool: dict[str, Any], values: dict[str, Any], arguments: dict[str, Any], caller: str
    ) -> dict[str, Any]:
        if tool.get("function") is not None:
            return self._function(tool, values["call"], arguments, caller)
        for statement in tool.get("sql", ()):
            self._database.write(statement, values)
        data: dict[str, Any] = {}
        for name, part in (tool.get("result") or {}).items():
            data |= self._part(tool, name, part, values, arguments)
        return data or {"done": True}

    def _function(self, tool: dict[str, Any], number: int, arguments: dict[str, Any], caller: str) -> dict[str, Any]:
        world = World(self._database, number, self._seed, caller)
        try:
            data = self._functions[tool["function"]](world, arguments)
        except (CallError, TooSlowError, sqlite3.Error):
            raise
        except BaseException as error:
            msg = f"{tool['function']} ended with {type(error).__name__}: {error}"
            raise BrokenError(msg) from error
        if not isinstance(data, dict):
            msg = f"{tool['function']} returned {type(data).__name__}, not a mapping"
            raise BrokenError(msg)
        check_answer(data)
        return data

    def _part(
        self, tool: dict[str, Any], name: str, part: dict[str, Any], values: dict[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        page = tool["page"]
        if page is not None and page["of"] == name:
            begin = pages.offset(arguments.get("page_token"))
            rows = self._database.read(pages.cut(part["rows"], begin, page["size"]), values, page["size"] + 1)
            token = pages.next_token(len(rows), begin, page["size"])
            return {name: _plain(rows[: page["size"]]), "next_page_token": token}
        if part["rows"] is not None:
            return {name: _plain(self._database.read(part["rows"], values))}
        row = next(iter(self._database.read(part["row"] or part["value"], values)), None)
        if part["row"] is not None:
            return {name: _plain(row)}
        return {name: None if row is None else _plain(next(iter(row.values())))}

    def _message(self, tool: dict[str, Any], arguments: dict[str, Any], request: str) -> None:
        if "message" not in tool:
            ready = READY_ARGUMENTS[tool["name"]]
            recipient, text = arguments.get(ready[0]), arguments.get(ready[-1])
        elif tool["message"] is not None:
            recipient, text = (guards.filled(tool["message"][part], arguments) for part in ("to", "text"))
        else:
            return
        self._database.own(
            "insert into _outbox (request, tool, recipient, text, payload, at) values (?, ?, ?, ?, ?, ?)",
            request,
            tool["name"],
            str(recipient or ""),
            str(text or ""),
            _json(arguments),
            self._database.now,
        )

    def _log(self, order: dict[str, Any], answer: dict[str, Any], *, effect: bool, approved: bool) -> None:
        name = order["tool"]
        number = self._database.own("select count(*) from _calls where tool = ?", name)[0][0] + 1
        tool = self._tools.get(name, {"irreversible": False})
        self._database.own(
            "insert into _calls (request, tool, caller, number, arguments, outcome, error, answer, effect, irreversible, approved, at) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            order["request"],
            name,
            order["caller"],
            number,
            _json(order["arguments"]),
            answer["outcome"],
            answer.get("kind"),
            _json(answer),
            int(effect),
            int(tool["irreversible"]),
            int(approved),
            self._database.now,
        )


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        msg = f"{name}: the number does not fit into 64 bits"
        raise CallError("invalid_argument", msg, 400)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            msg = f"{name}: the text holds half a surrogate pair"
            raise CallError("invalid_argument", msg, 400) from None


def _plain(value: Any) -> Any:
    """Return a value of the database as JSON has it: bytes as hex digits, a number that is none as null."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: Any) -> str:
    """Return the one JSON text of a value. Raises BrokenError for what has none."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the answer has no JSON form: {error}"
        raise BrokenError(msg) from error


def _error(error: CallError) -> dict[str, Any]:
    found = {"outcome": "error", "kind": error.kind, "message": error.message, "status": error.status}
    return found if error.retry_after is None else found | {"retry_after": error.retry_after}


def _refused(error: sqlite3.IntegrityError) -> dict[str, Any]:
    return _error(CallError("constraint", f"the database refuses it: {error}"))


def _broken(error: BaseException) -> dict[str, Any]:
    """Return what an agent learns of a mistake in the world, with the mistake itself for people."""
    detail = f"{type(error).__name__}: {error}"[:500]
    return {"outcome": "error", "kind": "tool_failed", "message": "the tool failed", "status": 500, "detail": detail}
