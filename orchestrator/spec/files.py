"""Reading one file of a person, and naming it in errors."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import Problem, SpecError
from orchestrator.spec.yaml import MAX_BYTES, Document, parse_yaml


def display(path: Path) -> str:
    """Return how errors name a path: relative to the current folder when it is below it."""
    here, full = Path.cwd(), path.absolute()
    shown = full.relative_to(here) if full.is_relative_to(here) else full
    return str(shown).encode(errors="surrogateescape").decode(errors="backslashreplace")


def read_bytes(path: Path, problems: list[Problem]) -> bytes | None:
    """Return a regular file's bytes; None, and a problem, when it is none, is too large or cannot be read."""
    try:
        if not path.is_file():
            message = "there is no such file" if not path.exists() else "this is not a regular file"
            problems.append(Problem(display(path), message=message))
            return None
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        problems.append(Problem(display(path), message=f"cannot be read: {error.strerror}"))
        return None
    if len(data) > MAX_BYTES:
        problems.append(Problem(display(path), message=f"the file is larger than {MAX_BYTES} bytes, which is the most"))
        return None
    return data


def read_text(path: Path, problems: list[Problem]) -> str | None:
    """Return a text file; None, and a problem, when that cannot be done."""
    data = read_bytes(path, problems)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        problems.append(Problem(display(path), message=f"the file is not UTF-8 text: byte {error.start} is not"))
        return None


def read_document(path: Path, problems: list[Problem]) -> Document | None:
    """Return a YAML file; None, and its problems, when that cannot be done."""
    data = read_bytes(path, problems)
    if data is None:
        return None
    try:
        return parse_yaml(data, display(path))
    except SpecError as error:
        problems += error.problems
        return None
