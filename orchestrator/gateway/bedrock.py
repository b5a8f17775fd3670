"""Claude models of Amazon Bedrock: the Messages API in the wrapping of InvokeModel and InvokeModelWithResponseStream.

boto3 finds the credentials where AWS tools find them, and signs; what is sent and read is bounded as for every other provider. A key in
the configuration is one of Bedrock's own and is sent instead of a signature.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import orjson

from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.dialects.base import ServerEvent
from orchestrator.gateway.provider import ModelCall, ProviderError
from orchestrator.gateway.upstream import Decoder, HttpProvider, Sending

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_VERSION = "bedrock-2023-05-31"
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_SERVICE = "bedrock"


class BedrockProvider(HttpProvider):
    """Bedrock in one region."""

    services = frozenset({"messages"})
    stream_type = "application/vnd.amazon.eventstream"

    def __init__(self, name: str, config: ProviderConfig, session: aiohttp.ClientSession) -> None:
        super().__init__(name, config, session)
        found = _REGION.search(config.base_url)
        self._region = config.region or (found[1] if found else None)
        self._found: Credentials | None = None

    async def sending(self, call: ModelCall, body: dict[str, Any], path: str) -> Sending:
        """Return the request for a call, signed. Raises ProviderError when there is nothing to sign with."""
        del path
        what = "invoke-with-response-stream" if body.get("stream") else "invoke"
        sent = {key: value for key, value in body.items() if key not in {"model", "stream"}}
        betas = [word for word in call.headers.get("anthropic-beta", "").split(",") if word]
        sent |= {"anthropic_version": _VERSION, **({"anthropic_beta": betas} if betas else {})}
        url = f"{self._config.base_url.rstrip('/')}/model/{quote(call.model, safe='')}/{what}"
        sending = Sending(url, orjson.dumps(sent), self.credentials(call.dialect))
        # Finding credentials may ask a service of the machine's, and loading boto3 takes a while.
        return sending if sending.headers else await asyncio.to_thread(self._signed, sending)

    def decoder(self) -> Decoder:
        """Return what reads one stream."""
        return _EventStream()

    def _signed(self, sending: Sending) -> Sending:
        import boto3
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        if self._region is None:
            raise self._cannot("its address names no region: set `region`")
        try:
            self._found = self._found or boto3.Session().get_credentials()
            frozen = self._found.get_frozen_credentials() if self._found is not None else None
        except BotoCoreError as error:
            raise self._cannot(f"AWS credentials could not be had ({type(error).__name__})") from None
        if frozen is None:
            raise self._cannot("there are no AWS credentials in the gateway's environment")
        request = AWSRequest("POST", sending.url, data=sending.data)
        SigV4Auth(frozen, _SERVICE, self._region).add_auth(request)
        return Sending(sending.url, sending.data, dict(request.headers.items()))

    def _cannot(self, why: str) -> ProviderError:
        return ProviderError(401, f"provider {self.name} cannot be asked: {why}", code="no_credentials")


class _EventStream:
    """Finds the events of the Messages API in the frames that AWS wraps them into (``vnd.amazon.eventstream``)."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer, ParserError

        self._buffer = EventStreamBuffer()
        self._broken = ParserError

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take more bytes and return the events that are whole now. Raises ValueError."""
        self._buffer.add_data(data)
        try:
            return [_event(frame.headers, frame.payload) for frame in self._buffer]
        except self._broken as error:
            msg = "a frame of the stream is not well formed"
            raise ValueError(msg) from error

    def end(self) -> ServerEvent | None:
        """Return None: every frame says how long it is."""
        return None


def _event(headers: dict[str, Any], payload: bytes) -> ServerEvent:
    said = orjson.loads(payload) if payload else {}
    if not isinstance(said, dict):
        msg = "a frame of the stream holds no object"
        raise ValueError(msg)
    if headers.get(":message-type") != "event":
        error = {"type": headers.get(":exception-type") or headers.get(":error-code"), "message": said.get("message")}
        return ServerEvent(orjson.dumps({"type": "error", "error": error}).decode(), "error")
    try:
        data = base64.b64decode(said.get("bytes", ""), validate=True).decode()
    except (binascii.Error, TypeError) as error:
        msg = "a frame of the stream holds no base64"
        raise ValueError(msg) from error
    inner = orjson.loads(data)
    kind = inner.get("type") if isinstance(inner, dict) else None
    return ServerEvent(data, kind if isinstance(kind, str) else None)
