"""All dialects that agents may speak."""

from __future__ import annotations

from orchestrator.gateway.dialects.base import Dialect
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.embeddings import EMBEDDINGS
from orchestrator.gateway.dialects.messages import MESSAGES
from orchestrator.gateway.dialects.responses import RESPONSES
from orchestrator.records.message import Endpoint

DIALECTS: dict[Endpoint, Dialect] = {each.name: each for each in (CHAT, RESPONSES, MESSAGES, EMBEDDINGS)}
"""By name."""
BY_PATH: dict[str, Dialect] = {dialect.path: dialect for dialect in DIALECTS.values()}
"""By what agents post to."""
