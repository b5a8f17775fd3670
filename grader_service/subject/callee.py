"""The fresh process of one ``call`` or ``script``: runs the agent's code and writes one JSON line to the descriptor given.

Started as a file (``python3 -I -B callee.py FD``) with the workspace as current folder; the request comes on standard input. Whatever the
agent's code does in this process it does to its own answer.
"""

import json
import math
import os
import sys
from typing import Any

_DEPTH = 200


class NotJSON(Exception):  # noqa: N818 - says what the value is
    """The value cannot cross as JSON."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as plain JSON types; tuples become lists. Raises NotJSON."""
    if depth > _DEPTH:
        msg = f"nested more than {_DEPTH} levels deep"
        raise NotJSON(msg)
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is int or kind is str:
        return value
    if kind is float:
        if not math.isfinite(value):
            msg = f"{value} is no JSON number"
            raise NotJSON(msg)
        return value
    if kind is list or kind is tuple:
        return [plain(item, depth + 1) for item in value]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                msg = f"a key of type {type(key).__name__}"
                raise NotJSON(msg)
        return {key: plain(item, depth + 1) for key, item in value.items()}
    return _converted(value, depth)


def _converted(value: Any, depth: int) -> Any:
    """Subclasses (enumerations, named tuples, ordered and default dictionaries) cross as what they are made of."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return plain(float(value), depth)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return plain(list(value), depth)
    if isinstance(value, dict):
        return plain(dict(value), depth)
    msg = f"a value of type {type(value).__name__}"
    raise NotJSON(msg)


def perform(job: dict[str, Any]) -> Any:
    """Run the agent's code and return its value."""
    sys.path[:0] = job["pythonpath"]
    if job["op"] == "script":
        import types

        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(job["code"], "<script>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - that is what it is for
        return module.__dict__["result"]
    import importlib

    name, _, path = job["target"].partition(":")
    found: Any = importlib.import_module(name)
    for part in path.split("."):
        found = getattr(found, part)
    return found(*job["args"], **job["kwargs"])


def main() -> None:
    """Answer the request on standard input."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    job = json.loads(sys.stdin.buffer.read())
    dumps, write, leave = json.dumps, os.write, os._exit
    try:
        value = plain(perform(job))
        line = dumps({"value": value}, allow_nan=False)
    except NotJSON as error:
        line = dumps({"not_json": str(error)})
    except BaseException as error:  # noqa: BLE001 - every exception of the agent's code is its answer
        names = [kind.__name__ for kind in type(error).__mro__ if kind not in {object, BaseException}]
        line = dumps({"error": {"type": type(error).__name__, "types": names, "message": _message(error)}})
    data = line.encode() + b"\n"
    while data:
        data = data[write(descriptor, data) :]
    leave(0)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:2000].encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - the agent's own __str__
        return ""


if __name__ == "__main__":
    main()
