"""Who may ask: requests that know the path's token, came to this address by its own name, and only read.

Any web page that a person has open can send requests to this machine, under a name that it made point here if need be, and every other
user of the machine can connect. Neither knows the token; the Host header tells the first one apart even if it did.
"""

from __future__ import annotations

import hmac
import secrets

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

TOKEN_BYTES = 24
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'none'; font-src 'none'; "
        "media-src 'none'; object-src 'none'; frame-src 'none'; worker-src 'none'; manifest-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), clipboard-read=()",
    "X-DNS-Prefetch-Control": "off",
}
"""On every answer. Trusted Types make the browser itself refuse text that would be read as markup."""
_SAME = frozenset({"same-origin", "none"})


def new_token() -> str:
    """Return a path segment that nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Guard:
    """Admits requests, and puts the headers on every answer."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._hosts: frozenset[str] = frozenset()

    def listen_at(self, port: int) -> str:
        """Take requests to this port and return the address to open."""
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        return f"http://127.0.0.1:{port}/{self.token}/"

    def refusal(self, request: web.Request) -> tuple[int, str] | None:
        """Return status and words for a request that is not admitted."""
        if request.headers.getall("Host", []) != [request.host] or request.host.lower() not in self._hosts:
            return 421, "this address is not served under that name"
        first = request.path.split("/", 2)[1]
        if not hmac.compare_digest(first.encode("utf-8", "surrogateescape"), self.token.encode()):
            return 404, "not found"
        if request.method not in {"GET", "HEAD"}:
            return 405, "this only reads"
        # A page of another site that got hold of the address; following a link from a mail or a terminal stays allowed.
        is_page = (
            request.headers.get("Sec-Fetch-Mode") == "navigate" and request.headers.get("Sec-Fetch-Dest") == "document"
        )
        if request.headers.get("Sec-Fetch-Site", "none") not in _SAME and not is_page:
            return 403, "only this page itself may ask"
        return None

    def middleware(self) -> Middleware:
        """Return the middleware that does both."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = self.refusal(request)
            if refused is not None:
                answer: web.StreamResponse = web.Response(status=refused[0], text=refused[1] + "\n")
            else:
                try:
                    answer = await handler(request)
                except web.HTTPException as error:
                    answer = web.Response(status=error.status, text=f"{error.reason}\n")
            answer.headers.update(HEADERS)
            answer.headers.setdefault("Cache-Control", "no-store")
            return answer

        return guarded
