"""The published schemas: valid themselves, documented, and never stricter than the loader."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.spec.schema import schemas
from orchestrator.spec.yaml import parse_yaml
from tests.spec.conftest import FILES

ROOT = Path(__file__).parents[2]
EVERYTHING = """\
id: auth-empty-password-001
version: 3
kind: regression
tier: 2
expect: ask_then_complete
origin: {incident: INC-2041}
tags: [auth]
instruction: |
  Fix it.
environment:
  image: ghcr.io/acme/python-auth@sha256:abc
  requires: [python3, git]
  workspace: {repository: "https://example.org/x.git", commit: 82c41d9}
  network: {allowlist: [api.example.com]}
  resources: {cpu: 0.5, memory: 1Gi, disk: 1000000, processes: 256}
  now: 2026-03-02T09:00:00Z
  state: {exclude: ["**/node_modules/**"]}
upstream: [{name: crm, mcp: {tools: ["get_*"]}}, {name: api, http: {methods: [GET, POST]}}]
fixtures: {mode: replay, cassette: fixtures/calls.jsonl}
user: {mode: scripted, opening: hello, replies: user.yaml, max_turns: 12}
tools: {allow: [a], expected: [{phase: lookup, any_of: [get_order]}], verify: ["pytest*"]}
budgets: {max_steps: 40, max_tool_calls: 100, max_wall_seconds: 900, max_tokens: 200000, max_cost_usd: 1.5}
samples: 5
checks:
  - {id: t, type: command, run: "pytest -q hidden/tests", results: junit, expect: hidden/e.txt, pythonpath: [src]}
  - {id: d, type: diff, allow: ["src/auth/**"]}
  - {any_of: [{id: a, type: db_goal, goal: hidden/a.sql}, {id: b, type: sql, database: a.db, query: x, expect: [[1, a]]}]}
  - {id: f, type: files, path: a.json, values: [{at: a.b, equals: {c: [1]}}, {at: x, absent: true}]}
  - {id: n, type: thresholds, path: a, bounds: {x: [1, null]}}
invariants:
  - {type: public_api_unchanged, package: src/auth}
  - {type: no_secret_leak}
trace: [{id: v, type: order, before: get_order, after: cancel_order}]
judges: [{id: r, rubric: hidden/rubric.yaml}]
measures: [{id: kb, type: file_size, path: dist/app.js}]
"""
ACCEPTED = {
    "task": [EVERYTHING, FILES["one/task.yaml"], "id: one\n"],
    "suite": [FILES["suite.yaml"], "id: a\nquarantine: [{task: a, owner: b, issue: c, expires: 2026-01-02}]\n"],
    "agent": ["type: oracle\n", "type: command\ncommand: [a, b]\nmodels: {main: openai/x}\nparams: {temperature: 0}\n"],
    "submission": ["suite: tasks/starter\nagents: [oracle]\nlimits: {cost_usd: 3}\n"],
    "script": [
        "conversations: [{weight: 2, turns: [{text: a, calls: [{name: b, arguments: {c: {file: d}}}], expect: e}]}]\n"
    ],
}


def check(name: str, value: Any) -> None:
    jsonschema.Draft202012Validator(schemas()[name]).validate(value)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in ACCEPTED.items() for text in texts])
def test_accepted_files_fit_and_unknown_keys_do_not(name: str, text: str) -> None:
    data = parse_yaml(text.encode(), "f").data
    check(name, data)
    with pytest.raises(jsonschema.ValidationError, match="unknwon"):
        check(name, data | {"unknwon": 1})


@pytest.mark.parametrize("path", sorted(ROOT.glob("tasks/*/*/task.yaml")), ids=lambda path: path.parent.name)
def test_the_tasks_of_this_repository_fit(path: Path) -> None:
    check("task", parse_yaml(path.read_bytes(), str(path)).data)


def test_settings_fit() -> None:
    text = 'store = "s"\n[providers.a]\nbase_url = "http://x"\nkey = {env = "K"}\n[prices."a/b"]\ninput = 1\noutput = 2.5\n'
    check("settings", tomllib.loads(text))
    with pytest.raises(jsonschema.ValidationError):
        check("settings", tomllib.loads(text + "outputt = 3\n"))
    assert "secret" not in schemas()["settings"]["$defs"]["Provider"]["properties"]


def test_schemas_are_valid_named_and_described() -> None:
    found = schemas()
    assert set(found) == {"task", "suite", "agent", "submission", "script", "user", "world", "settings"}
    for name, schema in found.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"].endswith(f":{name}")
        bare = [
            f"{where}.{field}"
            for where, part in [(name, schema), *schema.get("$defs", {}).items()]
            for field, value in part.get("properties", {}).items()
            if "description" not in value
            and field not in {"type", "id", "name", "phase", "any_of"}
            and "$ref" not in value
        ]
        assert bare == []


def test_descriptions_are_plain_single_lines() -> None:
    def descriptions(value: Any) -> list[str]:
        if isinstance(value, list):
            return [found for each in value for found in descriptions(each)]
        if not isinstance(value, dict):
            return []
        own = value.get("description")
        return [own] * isinstance(own, str) + [found for each in value.values() for found in descriptions(each)]

    found = descriptions(schemas())
    assert len(found) > 100
    assert [text for text in found if "``" in text or "\n" in text] == []
