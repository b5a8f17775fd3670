"""Typed refusals: what a client of the gateway gets instead of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

ErrorShape = Callable[[str, str | None, str], dict[str, Any]]
"""Makes the body of an error from its kind, code and message."""
_FINAL = frozenset({"model_api_error", "budget_exhausted", "sealed"})
"""Nothing better comes of asking again."""


class Refusal(Exception):  # noqa: N818  (it is an answer, not a fault)
    """An answer with an HTTP status and ``{"error": {"type", "code", "message"}}``, the shape that OpenAI clients read."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        finding: bool = False,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.message = message
        self.finding = finding
        """Whether the launch's record should say that this was tried."""
        self.close = close
        """Whether the connection must end, because the rest of the request was not read."""

    def response(self, headers: Mapping[str, str] | None = None, shape: ErrorShape | None = None) -> web.Response:
        """Return the answer to send, in the shape that OpenAI's clients read unless another is given."""
        error = {"type": self.kind, "code": self.code, "message": self.message, "param": None}
        body = {"error": error} if shape is None else shape(self.kind, self.code, self.message)
        response = web.json_response(body, status=self.status, headers=headers)
        if self.kind in _FINAL:
            response.headers["x-should-retry"] = "false"  # clients of OpenAI and Anthropic would ask again after a 502
        if self.close:
            response.force_close()
        return response
