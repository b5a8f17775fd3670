"""``finish STATUS [WORDS…]`` and ``ask WORDS…`` of the person's shell: one request to the gateway. Standard library only."""

# ruff: noqa: TID251 - a program of a sandbox: its environment is its own

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request

STATUSES = ("completed", "declined", "asked")
USAGE = f"usage: finish {'|'.join(STATUSES)} [WORDS...]\n       ask WORDS...\n"


def main(arguments: list[str]) -> int:
    """Send what was typed. Returns the exit code."""
    verb, words = arguments[0], arguments[1:]
    if not words or (verb == "finish" and words[0] not in STATUSES):
        sys.stderr.write(USAGE)
        return 2
    if verb == "ask":
        return _post("ask_user", {"question": " ".join(words)})
    return _post("finish", {"status": words[0], "message": " ".join(words[1:])})


def _post(tool: str, arguments: dict[str, str]) -> int:
    address = f"{os.environ['ORCHESTRATE_GATEWAY']}/tools/{tool}"
    headers = {"Authorization": f"Bearer {os.environ['ORCHESTRATE_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(arguments).encode(), headers)  # noqa: S310 - the gateway's
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310
            sys.stdout.write(answer.read().decode("utf-8", "replace") + "\n")
            return 0
    except urllib.error.HTTPError as error:
        sys.stderr.write(error.read().decode("utf-8", "replace") + "\n")
    except OSError as error:
        sys.stderr.write(f"the gateway cannot be reached: {error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
