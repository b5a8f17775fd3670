"""A small suite on the disk that tests change one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TASK = """\
id: one
instruction: Mend it.
environment:
  memory: memory/
world: world/
fixtures: {cassette: fixtures/calls.jsonl}
user: {mode: scripted, replies: user.yaml}
checks:
  - {id: tests, type: command, run: "pytest -q hidden/tests", expect: hidden/expected.txt}
  - {id: radius, type: diff, allow: ["src/**"]}
invariants:
  - {type: paths_unchanged, paths: ["tests/**"]}
"""

FILES = {
    "suite.yaml": "id: small\ndefaults:\n  samples: 3\n  budgets: {max_steps: 7}\n",
    "one/task.yaml": TASK,
    "one/README.md": "For people.\n",
    "one/workspace/src/a.py": "print(1)\n",
    "one/workspace/tests/test_a.py": "import a\n",
    "one/memory/notes.md": "remember\n",
    "one/world/seed.sql": "create table t (a);\n",
    "one/world/tools.yaml": (
        "tools:\n  - {name: list_t, description: Lists t., result: {all: {rows: 'select * from t'}}}\n"
    ),
    "one/fixtures/calls.jsonl": '{"format": "orchestrate-cassette", "version": 1, "tools": [{"name": "fetch_page"}]}\n',
    "one/user.yaml": "replies:\n  - {id: sure, mentions: [[sure]], say: 'Yes.'}\n",
    "one/hidden/expected.txt": "tests/test_a.py::test_a\n",
    "one/hidden/tests/test_a.py": "def test_a(): pass\n",
    "one/solution/solve.sh": "#!/bin/sh\necho 2 > src/a.py\n",
    "one/solution/extra/file.txt": "used by solve.sh\n",
    "one/solution/wrong-lazy/solve.sh": "#!/bin/sh\n# fails: tests, paths_unchanged\n",
}

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file below an empty current folder."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def suite(write: Write, tmp_path: Path) -> Path:
    """The folder of a valid suite with one task that uses every audience."""
    for name, text in FILES.items():
        write(f"small/{name}", text)
    return tmp_path / "small"
