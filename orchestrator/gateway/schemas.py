"""Judges the arguments of tool calls by the JSON Schema that came with the request (draft 2020-12, and lists of ``items`` as before it).

Agents write the schemas and this process holds keys, so the work is bounded whatever they say: steps are counted, patterns run in linear
time (RE2), and nothing is fetched. What a general validator would do with ``a: allOf [b, b]``, ``b: allOf [c, c]``, … takes years.
A schema that cannot be judged is the agent's mistake or its riddle, and no mistake of the model: such a call is neither valid nor invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
import re2

from orchestrator.gateway.body import within_depth
from orchestrator.records.message import Tool

MOST_STEPS = 20_000
"""Of one judgement; some tens of milliseconds."""
_MOST_DEPTH = 100
_MOST_SHOWN = 200
_PATTERN_STEPS = 50
"""What the shortest pattern counts when it is compiled; the others by what they become."""
_STATES_A_STEP = 40
"""Looked at in the time of a step: a pattern that defeats the automaton costs its size for each character of a text."""
_DIVISION_STEPS = 50
"""What a division of numbers of hundreds of digits counts."""
_OTHER_RULES = {
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "dependencies",
    "extends",
    "disallow",
}
"""Keywords that may forbid something and are not understood here."""
_IDS = {"$id", "id"}
"""Keywords that, inside of a schema, move what a ``$ref`` beneath them means."""


_TOO_MANY = "it takes too many steps"


class Fit(NamedTuple):
    """Whether arguments fit a schema."""

    valid: bool | None
    """None when there is no schema, or none that can be judged."""
    problem: str | None
    """What is wrong with the arguments or, where ``valid`` is None, with the schema."""


class Effort:
    """Steps for all judgements of one answer, which can hold thousands of calls."""

    def __init__(self, steps: int = 2 * MOST_STEPS) -> None:
        self.left = steps


def fit(arguments: str, tool: Tool, effort: Effort | None = None) -> Fit:
    """Return whether arguments fit the schema of their tool. Tools that take free text, and those without a schema, have none to fit.

    ``effort`` is shared by several judgements: with it they take no more steps than it has, all together.
    """
    schema = tool["schema"]
    if schema is None or tool["type"] == "custom":
        return Fit(None, None)
    effort = effort or Effort()
    if effort.left <= 0:
        return Fit(None, f"the schema cannot be judged: {_TOO_MANY}")
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        return Fit(
            False,
            f"the arguments are not JSON: {error.msg} at character {error.pos}"
            if arguments
            else "there are no arguments",
        )
    if not within_depth([value], _MOST_DEPTH):
        return Fit(False, f"the arguments nest deeper than {_MOST_DEPTH} levels")
    judge = _Judge(schema, min(MOST_STEPS, effort.left))
    try:
        problem = judge.problem(schema, value, "")
    except _UnusableError as unusable:
        return Fit(None, f"the schema cannot be judged: {unusable}")
    except RecursionError:
        return Fit(None, "the schema cannot be judged: it nests too deep")
    finally:
        effort.left -= judge.used
    return Fit(problem is None, problem)


class _UnusableError(Exception):
    """A schema says what cannot be judged here."""


class _Judge:
    """One judgement."""

    def __init__(self, root: Any, steps: int) -> None:
        self._root = root
        self._steps = steps
        self._depth = 0
        self._patterns: dict[str, Any] = {}
        self.used = 0
        """Steps so far."""

    def problem(self, schema: Any, value: Any, where: str) -> str | None:
        """Return what is wrong with a value, or None."""
        self.spend(1)
        if isinstance(schema, bool):
            return None if schema else f"{_at(where)} is not allowed"
        if not isinstance(schema, dict):
            msg = f"it is {_type_of(schema)} where a schema must be"
            raise _UnusableError(msg)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            msg = f"it nests deeper than {_MOST_DEPTH} levels, or its references go in a circle"
            raise _UnusableError(msg)
        try:
            return self._first(schema, value, where)
        finally:
            self._depth -= 1

    def _first(self, schema: dict[str, Any], value: Any, where: str) -> str | None:
        for keyword, rule in schema.items():
            self.spend(1)
            check = _RULES.get(keyword)
            if check is not None:
                found = check(self, rule, value, where, schema)
                if found is not None:
                    return found
            elif keyword in _OTHER_RULES or (keyword in _IDS and schema is not self._root):
                msg = f"it uses `{keyword}`"
                raise _UnusableError(msg)
        return None

    def spend(self, steps: int) -> None:
        """Count steps."""
        self.used += steps
        if self.used > self._steps:
            raise _UnusableError(_TOO_MANY)

    def fits(self, schema: Any, value: Any, where: str) -> bool:
        """Return whether a value fits."""
        return self.problem(schema, value, where) is None

    def target(self, reference: Any) -> Any:
        """Return what a reference inside of the schema points to (RFC 6901)."""
        if reference == "#":
            return self._root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            msg = f"it refers to {str(reference)[:_MOST_SHOWN]!r}, and only references such as '#/$defs/name' are followed"
            raise _UnusableError(msg)
        found = self._root
        self.spend(len(reference) // 100)
        for step in unquote(reference[2:]).split("/"):
            self.spend(1)
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                msg = f"there is nothing at {reference[:_MOST_SHOWN]!r}"
                raise _UnusableError(msg)
        return found

    def key(self, value: Any) -> str:
        """Return a text that is equal for equal values: 1 and 1.0 are, 1 and true are not."""
        found = orjson.dumps(self._plain(value), option=orjson.OPT_SORT_KEYS).decode()
        self.spend(1 + len(found) // 10)
        return found

    def _plain(self, value: Any) -> Any:
        """Return a value with whole numbers as such. Values nest no deeper than requests may."""
        self.spend(1)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
            return int(value)
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        return {name: self._plain(each) for name, each in value.items()} if isinstance(value, dict) else value

    def matches(self, pattern: Any, value: str) -> bool:
        """Return whether a pattern is found in a text."""
        if not isinstance(pattern, str):
            msg = "a pattern is no text"
            raise _UnusableError(msg)
        try:
            compiled = self._compiled(pattern)
            self.spend(1 + len(value) * compiled.programsize // _STATES_A_STEP)
            return compiled.search(value) is not None
        except (re2.error, UnicodeEncodeError):
            msg = f"pattern {pattern[:_MOST_SHOWN]!r} is none that runs in linear time"
            raise _UnusableError(msg) from None

    def _compiled(self, pattern: str) -> Any:
        known = self._patterns.get(pattern)
        if known is None:
            self.spend(_PATTERN_STEPS + len(pattern))
            known = self._patterns[pattern] = re2.compile(pattern, _pattern_options())
            self.spend(known.programsize)
        return known


_Rule = Callable[[_Judge, Any, Any, str, dict[str, Any]], str | None]


def _pattern_options() -> Any:
    options = re2.Options()
    options.max_mem = 1 << 17  # bytes of each of at most 128 that the library keeps
    options.log_errors = False
    return options


def _ref(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    return judge.problem(judge.target(rule), value, where)


def _type(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    wanted = _list(judge, rule) if isinstance(rule, list) else [rule]
    if not all(isinstance(each, str) for each in wanted):
        msg = "a `type` is no text"
        raise _UnusableError(msg)
    if any(_is(value, each) for each in wanted):
        return None
    return f"{_at(where)} must be {' or '.join(map(str, wanted))[:_MOST_SHOWN]}, not {_type_of(value)}"


def _const(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    return None if judge.key(rule) == judge.key(value) else f"{_at(where)} must be {judge.key(rule)[:_MOST_SHOWN]}"


def _enum(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    key = judge.key(value)
    keys = [judge.key(each) for each in _list(judge, rule)]
    return None if key in keys else f"{_at(where)} must be one of {', '.join(keys)[:_MOST_SHOWN]}"


def _all_of(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    problems = (judge.problem(each, value, where) for each in _list(judge, rule))
    return next((problem for problem in problems if problem is not None), None)


def _any_of(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    problems: list[str] = []
    for each in _list(judge, rule):
        problem = judge.problem(each, value, where)
        if problem is None:
            return None
        problems.append(problem)
    return problems[0] if len(problems) == 1 else f"{_at(where)} fits none of {len(problems)} alternatives"


def _one_of(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    fitting = sum(judge.fits(each, value, where) for each in _list(judge, rule))
    return None if fitting == 1 else f"{_at(where)} fits {fitting} alternatives, not one"


def _not(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    return f"{_at(where)} is what it must not be" if judge.fits(rule, value, where) else None


def _if(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    branch = schema.get("then" if judge.fits(rule, value, where) else "else", True)
    return judge.problem(branch, value, where)


def _properties(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if not isinstance(value, dict):
        return None
    for name, inner in _dict(judge, rule).items():
        if name in value:
            problem = judge.problem(inner, value[name], _within(where, name))
            if problem is not None:
                return problem
    return None


def _pattern_properties(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if not isinstance(value, dict):
        return None
    for pattern, inner in _dict(judge, rule).items():
        for name in value:
            problem = judge.problem(inner, value[name], _within(where, name)) if judge.matches(pattern, name) else None
            if problem is not None:
                return problem
    return None


def _additional(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    if not isinstance(value, dict) or rule is True:
        return None
    judge.spend(len(value) // 20)
    known, patterns = _dict(judge, schema.get("properties", {})), _dict(judge, schema.get("patternProperties", {}))
    for name in value:
        if name in known or any(judge.matches(pattern, name) for pattern in patterns):
            continue
        problem = judge.problem(rule, value[name], _within(where, name))
        if problem is not None:
            return problem
    return None


def _property_names(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    names = value if isinstance(value, dict) else ()
    wrong = (name for name in names if not judge.fits(rule, name, where))
    found = next(wrong, None)
    return None if found is None else f"{_at(where)} must have no {found[:_MOST_SHOWN]!r}"


def _required(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if not isinstance(value, dict):
        return None
    missing = [name for name in _list(judge, rule) if isinstance(name, str) and name not in value]
    return f"{_at(where)} lacks {', '.join(map(repr, missing))[:_MOST_SHOWN]}" if missing else None


def _dependent_required(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    present = (names for name, names in _dict(judge, rule).items() if isinstance(value, dict) and name in value)
    problems = (_required(judge, names, value, where, schema) for names in present)
    return next((problem for problem in problems if problem is not None), None)


def _dependent_schemas(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    present = (inner for name, inner in _dict(judge, rule).items() if isinstance(value, dict) and name in value)
    problems = (judge.problem(inner, value, where) for inner in present)
    return next((problem for problem in problems if problem is not None), None)


def _items(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    if isinstance(rule, list):
        return _prefix_items(judge, rule, value, where, schema)
    return _each(judge, rule, value, where, len(_list(judge, schema.get("prefixItems", []))))


def _prefix_items(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    pairs = zip(_list(judge, rule), value if isinstance(value, list) else (), strict=False)
    problems = (judge.problem(inner, each, f"{where}[{index}]") for index, (inner, each) in enumerate(pairs))
    return next((problem for problem in problems if problem is not None), None)


def _additional_items(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    listed = schema.get("items")
    return _each(judge, rule, value, where, len(listed)) if isinstance(listed, list) else None


def _each(judge: _Judge, rule: Any, value: Any, where: str, begin: int) -> str | None:
    rest = islice(value, begin, None) if isinstance(value, list) else ()
    problems = (judge.problem(rule, each, f"{where}[{index}]") for index, each in enumerate(rest, begin))
    return next((problem for problem in problems if problem is not None), None)


def _contains(judge: _Judge, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> str | None:
    if not isinstance(value, list):
        return None
    found = sum(judge.fits(rule, each, where) for each in value)
    least, most = _number(schema.get("minContains", 1)), schema.get("maxContains")
    if found >= least and (most is None or found <= _number(most)):
        return None
    return f"{_at(where)} has {found} entries of a kind of which another number is asked"


def _unique(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if rule is not True or not isinstance(value, list):
        return None
    keys = [judge.key(each) for each in value]
    return f"{_at(where)} has an entry twice" if len(set(keys)) < len(keys) else None


def _pattern(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if not isinstance(value, str) or judge.matches(rule, value):
        return None
    return f"{_at(where)} does not match {rule[:_MOST_SHOWN]!r}"


def _multiple_of(judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
    if not _is(value, "number"):
        return None
    step = _number(rule)
    if step <= 0:
        msg = "`multipleOf` is not positive"
        raise _UnusableError(msg)
    judge.spend(_DIVISION_STEPS)
    exact = Fraction(str(value)) % Fraction(str(step)) == 0
    return None if exact else f"{_at(where)} must be a multiple of {step}"


def _bound(
    kind: type | tuple[type, ...], size: Callable[[Any], Any], is_wrong: Callable[[Any, Any], bool], says: str
) -> _Rule:
    """Return the rule that a size has a limit."""

    def check(_judge: _Judge, rule: Any, value: Any, where: str, _schema: dict[str, Any]) -> str | None:
        if not isinstance(value, kind) or isinstance(value, bool):
            return None
        limit = _number(rule)
        return f"{_at(where)} must {says} {limit}" if is_wrong(size(value), limit) else None

    return check


def _less(size: Any, limit: Any) -> bool:
    return bool(size < limit)


def _more(size: Any, limit: Any) -> bool:
    return bool(size > limit)


def _itself(value: Any) -> Any:
    return value


_RULES: Mapping[str, _Rule] = {
    "$ref": _ref,
    "type": _type,
    "const": _const,
    "enum": _enum,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "items": _items,
    "prefixItems": _prefix_items,
    "additionalItems": _additional_items,
    "contains": _contains,
    "uniqueItems": _unique,
    "pattern": _pattern,
    "multipleOf": _multiple_of,
    "minLength": _bound(str, len, _less, "be at least as long as"),
    "maxLength": _bound(str, len, _more, "be at most as long as"),
    "minItems": _bound(list, len, _less, "have at least so many entries:"),
    "maxItems": _bound(list, len, _more, "have at most so many entries:"),
    "minProperties": _bound(dict, len, _less, "have at least so many properties:"),
    "maxProperties": _bound(dict, len, _more, "have at most so many properties:"),
    "minimum": _bound((int, float), _itself, _less, "be at least"),
    "maximum": _bound((int, float), _itself, _more, "be at most"),
    "exclusiveMinimum": _bound((int, float), _itself, lambda size, limit: bool(size <= limit), "be more than"),
    "exclusiveMaximum": _bound((int, float), _itself, lambda size, limit: bool(size >= limit), "be less than"),
}
"""Keywords that can forbid something. ``format`` and all the others only describe."""


def _list(judge: _Judge, rule: Any) -> list[Any]:
    """Return a list. Going through it is paid here, as far as nobody counts its entries."""
    if not isinstance(rule, list):
        msg = f"it has {_type_of(rule)} where a list must be"
        raise _UnusableError(msg)
    judge.spend(len(rule) // 20)
    return rule


def _dict(judge: _Judge, rule: Any) -> dict[str, Any]:
    """Return an object, paid as a list is."""
    if not isinstance(rule, dict):
        msg = f"it has {_type_of(rule)} where an object must be"
        raise _UnusableError(msg)
    judge.spend(len(rule) // 20)
    return rule


def _within(where: str, name: str) -> str:
    return f"{where}.{name[:_MOST_SHOWN]}"


def _number(rule: Any) -> int | float:
    if not _is(rule, "number"):
        msg = f"it has {_type_of(rule)} where a number must be"
        raise _UnusableError(msg)
    found: int | float = rule
    return found


def _is(value: Any, kind: str) -> bool:
    found = _type_of(value)
    if kind == "integer":
        return found == "number" and value == int(value)
    return found == kind


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "boolean"), (str, "string"), ((int, float), "number"), (list, "array"),
    )  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _at(where: str) -> str:
    return f"`{where.removeprefix('.')[:_MOST_SHOWN]}`" if where else "the value"
