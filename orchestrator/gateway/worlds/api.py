"""HTTP APIs of a team that only the gateway reaches: their keys are added here, and never leave.

One API is one tool, named like it, that takes ``method``, ``path``, ``query`` and ``body``; agents that speak plain HTTP send the same to
``/upstream/NAME/PATH``. So a call is recorded, limited and replayed like any other. The address is the operator's and only the path is the
agent's: it cannot lead to another host, and redirects are shown, not followed. What the API answers is an answer, errors among them. An
API to which no connection can be made is our failure, since no agent can bring that about.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from pydantic import JsonValue
from yarl import URL

from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer
from orchestrator.spec.task import HttpUpstream

MOST_ANSWER = 1 << 20
"""Bytes of an answer."""
_ARGUMENTS = frozenset({"method", "path", "query", "body"})
_MOST_PATH = 2000
_MOST_BODY = 1 << 20
_TOLD = 4000
"""Characters of an error's text."""
_HIDDEN = b"[hidden]"
_STEPS = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")


def api_tool(
    launch: Launch, name: str, spec: HttpUpstream, server: ProviderConfig, session: aiohttp.ClientSession
) -> Tool:
    """Return the tool of one API."""
    schema = _schema(spec)

    def prepare(arguments: dict[str, Any]) -> Effect:
        _check(name, arguments, spec)

        async def call() -> ToolAnswer:
            return await _called(launch, name, server, session, arguments)

        return call

    return Tool(
        name=name,
        description=f"Call the HTTP API {name}. Answers with its status and body.",
        schema=schema,
        prepare=prepare,
        seconds=server.timeout_seconds + 5,
    )


def _schema(spec: HttpUpstream) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["method", "path"],
        "properties": {
            "method": {"type": "string", "enum": list(spec.methods)},
            "path": {"type": "string", "description": "Begins with /; without query."},
            "query": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": {"description": "JSON value, or text."},
        },
    }


def _check(name: str, arguments: dict[str, Any], spec: HttpUpstream) -> None:
    """Raise ArgumentsError with everything that is wrong with a call."""
    unknown = sorted(set(arguments) - _ARGUMENTS)[:20]
    problems = [f"{printable(each, 60)}: is no argument of {name}" for each in unknown]
    method, path, query = arguments.get("method"), arguments.get("path"), arguments.get("query", {})
    if method not in spec.methods:
        problems.append(f"method: must be one of {', '.join(spec.methods)}")
    if not isinstance(path, str) or not path.startswith("/") or len(path) > _MOST_PATH:
        problems.append(f"path: must be a text that begins with /, of at most {_MOST_PATH} characters")
    elif path.startswith("//") or re.search(r"[?#\\\x00-\x20\x7f]", path) or _STEPS.search(path) or "%" in path:
        problems.append("path: must be plain: no query, no empty or dotted steps, no escapes, spaces or backslashes")
    if not isinstance(query, dict) or not all(isinstance(each, str) for each in query.values()):
        problems.append("query: must be an object of texts")
    elif sum(len(key) + len(value) for key, value in query.items()) > _MOST_PATH:
        problems.append(f"query: has more than {_MOST_PATH} characters")
    if len(orjson.dumps(arguments.get("body"))) > _MOST_BODY:
        problems.append(f"body: has more than {_MOST_BODY} bytes")
    if problems:
        raise ArgumentsError("; ".join(problems))


async def _called(
    launch: Launch, name: str, server: ProviderConfig, session: aiohttp.ClientSession, arguments: dict[str, Any]
) -> ToolAnswer:
    body = arguments.get("body")
    url = URL(server.base_url.rstrip("/") + quote(arguments["path"], safe="/-._~!$&'()*+,;=:@"), encoded=True)
    headers = {"Accept": "application/json, text/*;q=0.5", "Accept-Encoding": "identity", **credentials(server)}
    sent = {"data": body.encode()} if isinstance(body, str) else {} if body is None else {"json": body}
    try:
        async with session.request(
            arguments["method"],
            url.update_query({**arguments.get("query", {}), **server.query}),
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=server.timeout_seconds),
            **sent,
        ) as response:
            data = await bounded(response)
            if data is None:
                return ToolAnswer(
                    outcome="error", kind="too_large", message=f"the answer has more than {MOST_ANSWER} bytes"
                )
            return _answer(response.status, hidden(server, data), response.headers.get("Retry-After"))
    except (TimeoutError, aiohttp.ServerTimeoutError):
        message = f"{name} did not answer within {server.timeout_seconds:g} s"
        return ToolAnswer(outcome="timeout", kind="timeout", message=message)
    except aiohttp.ClientConnectorError as error:
        return unreachable(launch, name, error)
    except aiohttp.ClientError as error:
        return ToolAnswer(
            outcome="error", kind="broken", message=f"the connection to {name} broke: {type(error).__name__}"
        )


def credentials(server: ProviderConfig) -> dict[str, str]:
    """Return the headers that are added to every call."""
    own = {name: value.get_secret_value() for name, value in server.headers.items()}
    return own if server.key is None else {"Authorization": f"Bearer {server.key.get_secret_value()}", **own}


async def bounded(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body of an answer; None: it is too large."""
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > MOST_ANSWER:
            return None
    return bytes(data)


def hidden(server: ProviderConfig, data: bytes) -> bytes:
    """Return what a server said without the keys that it was shown."""
    for secret in server.secrets:
        data = data.replace(secret.encode(), _HIDDEN)
    return data


def unreachable(launch: Launch, name: str, error: Exception) -> ToolAnswer:
    """End a launch whose server takes no connection: nobody's act, so it is made again."""
    launch.findings.add("upstream_unreachable", f"{name}: {type(error).__name__}")
    launch.end("infra_lost")
    return ToolAnswer(
        outcome="error", kind="unreachable", message=f"{name} cannot be reached; the trial ends", code=503
    )


def _answer(status: int, data: bytes, retry_after: str | None) -> ToolAnswer:
    if status >= 400:
        seconds = float(retry_after) if retry_after is not None and re.fullmatch(r"\d{1,6}", retry_after) else None
        text = data.decode("utf-8", "replace")[:_TOLD]
        return ToolAnswer(
            outcome="error", kind=f"http_{status}", message=text or f"status {status}", code=status, retry_after=seconds
        )
    return ToolAnswer(data={"status": status, "body": _value(data)})


def _value(data: bytes) -> JsonValue:
    try:
        found: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode("utf-8", "replace")
    return found
