"""The generated end of ``/task/instruction.md``: how to finish, and within which limits.

Its text depends on the budgets alone. So it tells an agent nothing about the ending that a task expects or about its
checks, and a change of the text is a change of ``FINISHING_VERSION`` and of every sandbox bundle's digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from orchestrator.spec.task import Budgets, User

FINISHING_VERSION = 1

_NOW = """\
It is {now:%A}, {now.day} {now:%B %Y}, {now:%H:%M} UTC (`{now:%Y-%m-%dT%H:%M:%SZ}`, also in `$ORCHESTRATE_NOW`). Go by this time, whatever
another clock says.

"""

_USER = """\
---

## Whom you can ask

There is a user, who answers at most {most}. Ask what only the user can know, one thing at a time: call the tool `ask_user` with
`{{"question": "…"}}`, or `POST` that to `$ORCHESTRATE_GATEWAY/tools/ask_user` with the headers named below. The answer is
`{{"reply": "…", "questions_left": …}}`.

"""

_TOOLS = """\
---

## Tools

Beside your own there are tools of the environment. They are offered by MCP (streamable HTTP) at `$ORCHESTRATE_GATEWAY/mcp`. Without MCP,
`GET $ORCHESTRATE_GATEWAY/tools` lists them with the JSON Schema of their arguments, and `POST $ORCHESTRATE_GATEWAY/tools/NAME` with the
arguments as JSON calls one; use the headers named below. A call that fails says why, as `{{"error": {{"type": "…", "message": "…"}}}}`.

"""

_APIS = """\
These are HTTP APIs as well, with the headers named below and JSON as bodies: {places}

"""

_SECTION = """\
---

## How to work and how to finish (section version {version})

- Your files are in the current folder, the workspace. What is there when you stop is your result.
- There is no network, except the model that you may have been given.
- Limits: {steps} model responses, {calls} tool calls, {tokens} tokens, {minutes} of working time. Waiting for the
  model does not count. At a limit you are stopped, and what is in the workspace then is your result.

When you are done, say so once, in one of these ways:

1. call the tool `finish`, if you have one;
2. `POST` the JSON below to `$ORCHESTRATE_GATEWAY/tools/finish` with the headers
   `Authorization: Bearer $ORCHESTRATE_TOKEN` and `Content-Type: application/json`;
3. write the JSON below to `/output/final.json`, then exit.

```json
{{"status": "completed", "message": "what you did, or your question", "confidence": "high", "escalation": {{}}}}
```

- `status` is `completed` when you did the work; `declined` when it must not be done, or not by you, and you left
  everything as it was; `asked` when something that you need to know is missing and cannot be found out here: `message`
  is then your question.
- `message` is for a person: short and complete.
- `confidence` is how sure you are that this is right: `low`, `medium`, `high`, or a number from 0 to 1.
- `escalation` names, as texts, what a person needs to go on, for example the permission that is missing. Leave it empty
  otherwise.
"""


def _minutes(seconds: int) -> str:
    minutes = f"{seconds / 60:.1f}".removesuffix(".0")
    return f"{minutes} minute" if minutes == "1" else f"{minutes} minutes"


def finishing_section(budgets: Budgets) -> str:
    """Return the section for these budgets; working time is given in minutes."""
    return _SECTION.format(
        version=FINISHING_VERSION,
        steps=budgets.max_steps,
        calls=budgets.max_tool_calls,
        tokens=budgets.max_tokens,
        minutes=_minutes(budgets.max_wall_seconds),
    )


def instruction_file(
    instruction: str,
    budgets: Budgets,
    user: User | None = None,
    *,
    now: datetime | None = None,
    has_tools: bool = False,
    apis: Sequence[str] = (),
) -> bytes:
    """Return the whole ``/task/instruction.md``: the task's instruction, the time, the user's words and how to ask, tools, the section.

    ``has_tools``: the gateway offers tools of the task. ``apis``: those of them that are HTTP APIs.
    """
    text = f"{instruction.rstrip()}\n\n"
    if now is not None:
        text += _NOW.format(now=now.astimezone(UTC))
    if user is not None:
        if user.opening is not None:
            said = "\n".join(f"> {line}".rstrip() for line in user.opening.strip().split("\n"))
            text += f"The user says:\n\n{said}\n\n"
        text += _USER.format(most="one question" if user.max_turns == 1 else f"{user.max_turns} questions")
    if has_tools:
        text += _TOOLS.format()
    if apis:
        text += _APIS.format(places=", ".join(f"`$ORCHESTRATE_GATEWAY/upstream/{name}/…`" for name in apis))
    return f"{text}{finishing_section(budgets)}".encode()
