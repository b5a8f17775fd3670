"""Typed refusals: what a client of the gateway gets instead of an answer."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web


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

    def response(self, headers: Mapping[str, str] | None = None) -> web.Response:
        """Return the answer to send."""
        error = {"type": self.kind, "code": self.code, "message": self.message, "param": None}
        response = web.json_response({"error": error}, status=self.status, headers=headers)
        if self.close:
            response.force_close()
        return response
