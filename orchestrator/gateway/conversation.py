"""The conversation with the task's user over plain HTTP, for agents that chat: another face of the tool ``ask_user``.

``GET /v1/conversation`` gives what was said so far, ``POST /v1/conversation/next`` says the agent's next message and gives the user's.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.tools import begin_call, tool_response

PATH = "/v1/conversation"
NEXT = f"{PATH}/next"


def show_conversation(launch: Launch) -> web.Response:
    """Answer ``GET /v1/conversation``. Raises Refusal when the task has no user."""
    if launch.talk is None:
        raise _nobody()
    return web.json_response(launch.talk.shown())


async def next_turn(launch: Launch, body: dict[str, Any]) -> web.Response:
    """Answer ``POST /v1/conversation/next`` with ``{message, done, turns_left}``. Raises Refusal."""
    if launch.talk is None:
        raise _nobody()
    if unknown := sorted(set(body) - {"message"}):
        msg = f'{", ".join(repr(name[:60]) for name in unknown[:5])}: not a field of a turn; send {{"message": "..."}} alone'
        raise Refusal(400, "invalid_arguments", msg)
    answer = await asyncio.shield(begin_call(launch, "ask_user", {"question": body.get("message")}, "http"))
    said = answer.data
    turn = {"message": said.get("reply"), "done": said.get("done", False), "turns_left": said.get("questions_left")}
    return tool_response(launch, "ask_user", answer, turn)


def _nobody() -> Refusal:
    return Refusal(404, "no_user", "this task has no user to talk to")
