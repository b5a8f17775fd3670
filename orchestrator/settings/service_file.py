"""Configuration files of services on a cluster: JSON, with each secret in a file of its own that it names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.settings.kubernetes import ENDPOINT, NAMESPACE
from orchestrator.settings.part import ADDRESS

_SHORTEST_TOKEN = 16
_SECRET_BYTES = 64 << 10
_PATTERNS = {
    ENDPOINT: "must be HOST:PORT",
    ADDRESS: "must be an http:// or https:// address without a user or key in it",
    NAMESPACE: "must be a name of the cluster's: lower case letters, digits, dashes, at most 63",
}
Model = TypeVar("Model", bound=BaseModel)


def read_service_file(path: Path, model: type[Model], groups: Mapping[str, tuple[str, ...]]) -> Model:
    """Return what a file says; ``groups`` are the fields of the groups in it. Raises SpecError with every problem: file, field, reason."""
    try:
        data = path.read_bytes()
        json.loads(data)
        return model.model_validate_json(data)
    except OSError as error:
        raise SpecError([Problem(str(path), message=f"cannot be read: {error.strerror}")]) from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        names = {"": tuple(model.model_fields), **groups}
        problems = [Problem(str(path), field=_dotted(each["loc"]), message=_words(each, names)) for each in found]
        raise SpecError(problems) from None
    except json.JSONDecodeError as error:
        raise SpecError([Problem(str(path), error.lineno, error.colno, message=f"is not JSON: {error.msg}")]) from None
    except ValueError:
        raise SpecError([Problem(str(path), message="is not JSON: it is no UTF-8 text")]) from None


def _dotted(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _words(error: Any, names: Mapping[str, tuple[str, ...]]) -> str:
    """Return what is wrong, in words that never hold a value. ``names`` are the fields of each group."""
    kind, place = error["type"], error["loc"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        valid = names.get(str(place[0]) if len(place) > 1 else "", ())
        guess = nearest(str(place[-1]), valid)
        return f"is not a field{guess or '; there are ' + ', '.join(valid) if valid else ''}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS[str(error["ctx"]["pattern"])]
    return str(error["msg"]).replace("Input should", "must").replace("must be a valid", "must be a")


class Secrets:
    """Reads the files that a configuration names, and collects what is wrong with them."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._problems: list[Problem] = []

    def token(self, field: str, path: Path) -> SecretStr:
        """Return a token."""
        found = self.text(field, path)
        if found and len(found) < _SHORTEST_TOKEN:
            self._complain(field, f"{path} has {len(found)} characters; a token needs {_SHORTEST_TOKEN} or more")
        return SecretStr(found)

    def text(self, field: str, path: Path) -> str:
        """Return what a file holds, without the white space around it; empty when that is a problem."""
        try:
            with path.open("rb") as file:
                found = file.read(_SECRET_BYTES).decode().strip()
        except OSError as error:
            self._complain(field, f"{path} cannot be read: {error.strerror}")
            return ""
        except UnicodeDecodeError:
            found = ""
        if not found or ("\n" in found and not found.startswith("{")):
            self._complain(field, f"{path} must hold one line of text and nothing else")
            return ""
        return found

    def headers(self, field: str, path: Path) -> dict[str, SecretStr]:
        """Return the headers of a file."""
        found = self.text(field, path)
        try:
            value = json.loads(found) if found else {}
        except ValueError:
            value = None
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            self._complain(field, f"{path} must be a JSON object of header names and texts")
            return {}
        return {name: SecretStr(text) for name, text in value.items()}

    def distinct(self, tokens: Mapping[str, SecretStr]) -> None:
        """Complain of tokens that several roles share: whoever has one would be all of them."""
        counts = Counter(token.get_secret_value() for token in tokens.values())
        same = sorted(
            role for role, token in tokens.items() if token.get_secret_value() and counts[token.get_secret_value()] > 1
        )
        if same:
            self._complain("tokens", f"{' and '.join(same)} have the same token; give each role one of its own")

    def check(self) -> None:
        """Raise SpecError when there was a problem."""
        if self._problems:
            raise SpecError(self._problems)

    def _complain(self, field: str, message: str) -> None:
        self._problems.append(Problem(self._file, field=field, message=message))
