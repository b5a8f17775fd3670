"""Configuration files of gateway and relay: every mistake at once, by file and field, and no secret in any message."""

from __future__ import annotations

import json

import pytest

from orchestrator.errors import SpecError
from orchestrator.gateway.service_file import read_gateway_file, read_relay_file

KEY = "sk-very-secret-provider-key"


@pytest.fixture
def write(tmp_path):
    for name in ("driver", "relay", "reaper"):
        (tmp_path / name).write_text(f"token-of-the-{name}-role\n")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "headers").write_text('{"X-Team": "evaluation-team"}')

    def make(**change):
        said = {
            "store": "s3://bucket/store",
            "cache": "/var/cache/orchestrate",
            "folder": "/var/lib/orchestrate",
            "agent": "0.0.0.0:8080",
            "admin": "[::]:8081",
            "tokens": {name: str(tmp_path / name) for name in ("driver", "relay", "reaper")},
            "providers": {
                "openai": {
                    "base_url": "https://api.openai.com/v1",
                    "key_file": str(tmp_path / "key"),
                    "headers_file": str(tmp_path / "headers"),
                }
            },
            "canaries": ["canary-a.system.svc:9000"],
            **change,
        }
        file = tmp_path / "gateway.json"
        file.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
        return file

    return make


def problems(read, file):
    with pytest.raises(SpecError) as caught:
        read(file)
    assert all(each.file == str(file) for each in caught.value.problems)
    assert KEY not in str(caught.value)
    return {each.field: each.message for each in caught.value.problems}


def test_a_whole_file_gives_secrets_and_limits(write):
    file, config = read_gateway_file(write(limits={"calls": 3}, grace_seconds=1))
    assert (file.store, config.agent, config.admin, config.canaries) == (
        "s3://bucket/store",
        "0.0.0.0:8080",
        "[::]:8081",
        ("canary-a.system.svc:9000",),
    )
    assert config.tokens.reaper.get_secret_value() == "token-of-the-reaper-role"
    assert config.providers["openai"].key.get_secret_value() == KEY
    assert config.providers["openai"].headers["X-Team"].get_secret_value() == "evaluation-team"
    assert (config.limits.calls, config.grace_seconds, config.serves_pods) == (3, 1, True)
    assert KEY not in repr(config)


def test_every_mistake_is_named_with_its_field(write, tmp_path):
    file = write(
        store=None,
        agent="8080",
        canaries=["a:1", "b"],
        providers={"openai": {"base_url": "ftp://x", "keyfile": KEY}},
        limits={"connection": 3, "calls": 0},
        tokens={"driver": 1, "relays": "x"},
    )
    found = problems(read_gateway_file, file)
    assert found == {
        "store": "is missing",
        "agent": "must be HOST:PORT",
        "canaries[1]": "must be HOST:PORT",
        "providers.openai.base_url": "must be an http:// or https:// address without a user or key in it",
        "providers.openai.keyfile": "is not a field (did you mean 'key_file'?)",
        "limits.connection": "is not a field (did you mean 'connections'?)",
        "limits.calls": "must be greater than 0",
        "tokens.driver": found["tokens.driver"],
        "tokens.relay": "is missing",
        "tokens.reaper": "is missing",
        "tokens.relays": "is not a field (did you mean 'relay'?)",
    }


def test_every_secret_that_cannot_be_had_is_named(write, tmp_path):
    (tmp_path / "short").write_text("short")
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "lines").write_text("a\nb")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "list").write_text('{"a": 1}')

    def provider(**change):
        return {"base_url": "http://x", **{key: str(tmp_path / name) for key, name in change.items()}}

    file = write(
        tokens={"driver": str(tmp_path / "short"), "relay": str(tmp_path / "none"), "reaper": str(tmp_path / "empty")},
        providers={
            "a": provider(key_file="lines"),
            "b": provider(key_file="bytes"),
            "c": provider(headers_file="list"),
        },
    )
    found = problems(read_gateway_file, file)
    assert {field: message.partition(" ")[2] for field, message in found.items()} == {
        "tokens.driver": "has 5 characters; a token needs 16 or more",
        "tokens.relay": "cannot be read: No such file or directory",
        "tokens.reaper": "must hold one line of text and nothing else",
        "providers.a.key_file": "must hold one line of text and nothing else",
        "providers.b.key_file": "must hold one line of text and nothing else",
        "providers.c.headers_file": "must be a JSON object of header names and texts",
    }


def test_roles_with_one_token_are_refused(write, tmp_path):
    same = str(tmp_path / "driver")
    file = write(tokens={"driver": same, "relay": same, "reaper": str(tmp_path / "reaper")})
    assert problems(read_gateway_file, file) == {
        "tokens": "driver and relay have the same token; give each role one of its own"
    }


@pytest.mark.parametrize(
    ("data", "says"),
    [(b'{"store": "x",\n}', "is not JSON"), (b"\xff", "is not JSON"), (b"[]", "must be"), (None, "cannot be read")],
)
def test_a_file_that_is_none_is_named(tmp_path, data, says):
    file = tmp_path / "relay.json"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(SpecError, match=says):
        read_relay_file(file)


def test_a_relay_needs_a_gateway(tmp_path):
    (tmp_path / "token").write_text("token-of-the-relay")
    file = tmp_path / "relay.json"
    file.write_text(
        json.dumps({"store": "s", "listen": "0.0.0.0:8080", "gateways": [], "token": str(tmp_path / "token")})
    )
    assert list(problems(read_relay_file, file)) == ["gateways"]
