"""What of an agent's request headers goes to a provider: the few that belong to an API, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.gateway.dialects.base import Dialect
from orchestrator.gateway.findings import Findings, printable

_BETA = "anthropic-beta"
_VERSION = "anthropic-version"
_WORD = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOST = 32
"""Betas of one request."""
_AT_PROVIDER = {
    "code-execution": "code_execution",
    "files-api": None,
    "mcp-client": None,
    "message-batches": None,
    "oauth": None,
    "skills": None,
    "web-fetch": "web_fetch",
    "web-search": "web_search",
}
"""Betas by what they begin with that have something run or kept at the provider, and the tool that a task can allow; None: never."""


def passed_headers(
    headers: Mapping[str, str], dialect: Dialect, hosted: frozenset[str], findings: Findings
) -> dict[str, str]:
    """Return the headers that go along. Betas that lead around what may run at a provider are left out, and found."""
    if dialect.name != "messages":
        return {}
    passed: dict[str, str] = {}
    version = headers.get(_VERSION, "").strip()
    if _DATE.fullmatch(version):
        passed[_VERSION] = version
    asked = [word.strip() for word in headers.get(_BETA, "").split(",")][:_MOST]
    betas = [word for word in asked if _WORD.fullmatch(word)]
    allowed = [word for word in betas if _is_allowed(word, hosted)]
    for word in betas:
        if word not in allowed and not word.startswith("oauth"):  # keys are ours, so no client needs that one
            findings.add("hosted_tool", f"{_BETA}: {printable(word, 60)} was not passed on")
    if allowed:
        passed[_BETA] = ",".join(allowed)
    return passed


def _is_allowed(word: str, hosted: frozenset[str]) -> bool:
    for start, tool in _AT_PROVIDER.items():
        if word.startswith(start):
            return tool is not None and any(each.startswith(tool) for each in hosted)
    return True
