"""Read JSON, TOML, YAML and INI documents that an agent wrote. Only ever in the limited child."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from grader_service.child.workspace import Broken, Unusable

_DOCUMENT_CHARS = 16 << 20


def load(kind: str, text: str) -> Any:
    """Return a document as JSON values. Raises Unusable when it is not valid, Broken for a format that is not known."""
    readers = {"json": _json, "toml": _toml, "yaml": _yaml, "yml": _yaml, "ini": _ini, "cfg": _ini}
    if kind not in readers:
        msg = f"values need a format: {kind!r} is none of json, toml, yaml, ini"
        raise Broken(msg)
    if len(text) > _DOCUMENT_CHARS:
        msg = f"the document has {len(text)} characters; at most {_DOCUMENT_CHARS} are read"
        raise Unusable(msg)
    try:
        return readers[kind](text)
    except RecursionError as error:
        msg = f"the {kind} document is nested too deeply"
        raise Unusable(msg) from error


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        msg = f"not valid JSON: {error}"
        raise Unusable(msg) from error


def _no_constant(word: str) -> Any:
    msg = f"{word} is no JSON value"
    raise ValueError(msg)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        msg = f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands there twice"
        raise ValueError(msg)
    return result


def _toml(text: str) -> Any:
    import tomllib

    try:
        return _plain(tomllib.loads(text))
    except ValueError as error:
        msg = f"not valid TOML: {error}"
        raise Unusable(msg) from error


def _yaml(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return _plain(YAML(typ="safe", pure=True).load(text))
    except (YAMLError, ValueError, AttributeError, TypeError) as error:
        msg = f"not valid YAML: {type(error).__name__}"
        raise Unusable(msg) from error


def _ini(text: str) -> Any:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, default_section="\0none")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError) as error:
        msg = f"not valid INI: {type(error).__name__}"
        raise Unusable(msg) from error
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _plain(value: Any) -> Any:
    """Times become RFC 3339 text, keys become text: what a task file can say."""
    if isinstance(value, dict):
        return _no_duplicates(
            [
                (key if isinstance(key, str) else json.dumps(_plain(key), default=str), _plain(item))
                for key, item in value.items()
            ]
        )
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value
