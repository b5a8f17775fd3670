"""A task with a user, from its folder to the verdict: who asks passes, who guesses does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_TASK = """
id: quote
expect: ask_then_complete
instruction: Write the price of order 7 into price.txt, in the currency that the customer pays in.
user:
  mode: scripted
  opening: I need the price of order 7.
  replies: user.yaml
  max_turns: 3
checks:
  - {id: price, type: files, path: price.txt, regex: "^70 EUR$"}
  - {id: asked, type: asked, replies: [currency], max_questions: 2}
  - {id: radius, type: diff, allow: [price.txt]}
"""
_USER = """
replies:
  - {id: currency, mentions: [[currency, euros]], say: The customer pays in EUR.}
"""
_ASK = """
curl() {
  python3 -c '
import json, os, sys, urllib.request
request = urllib.request.Request(
    os.environ["ORCHESTRATE_GATEWAY"] + "/tools/ask_user", json.dumps({"question": sys.argv[1]}).encode(),
    {"Authorization": "Bearer " + os.environ["ORCHESTRATE_TOKEN"], "Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request))["reply"])' "$1"
}
"""
_SOLVE = f"""#!/bin/sh
{_ASK}
echo "70 $(curl 'Which currency does the customer pay in?' | grep -o 'EUR')" > price.txt
"""
_GUESS = "#!/bin/sh\n# fails: asked\necho '70 EUR' > price.txt\n"
_PESTER = f"""#!/bin/sh
# fails: asked
{_ASK}
curl 'Hello?'; curl 'Which currency?'; curl 'Really?'
echo '70 EUR' > price.txt
"""
_SCRIPT = """
conversations:
  - turns:
      - {calls: [{name: ask_user, arguments: {question: Which currency?}}]}
      - {expect: 'pays in EUR.*"questions_left": 2', calls: [{name: shell, arguments: {command: echo 70 EUR > price.txt}}]}
      - {calls: [{name: finish, arguments: {status: completed}}]}
"""


_FILES = {
    "suite/suite.yaml": "id: asking\ndefaults:\n  environment: {requires: [python3]}\n",
    "suite/quote/task.yaml": _TASK,
    "suite/quote/user.yaml": _USER,
    "suite/quote/workspace/orders.txt": "7: 70\n",
    "suite/quote/solution/solve.sh": _SOLVE,
    "suite/quote/solution/wrong-guess/solve.sh": _GUESS,
    "suite/quote/solution/wrong-pester/solve.sh": _PESTER,
    "agents/polite.yaml": "type: react\nmodels: {main: scripted/polite}\nscripts: polite\n",
    "agents/polite/quote.yaml": _SCRIPT,
}


@pytest.fixture(autouse=True)
def written(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


@pytest.mark.slow
def test_a_solution_that_asks_is_proven_and_one_that_guesses_or_pesters_fails(orchestrate) -> None:
    proven = orchestrate("validate", "suite")
    assert proven.returncode == 0, proven.stdout + proven.stderr


@pytest.mark.long
def test_a_model_asks_and_goes_on(orchestrate, in_process) -> None:
    done = orchestrate("submit", "suite", "--agent", "agents/polite.yaml", "--run-id", "asking")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = in_process("show", "asking", "quote").stdout
    assert "asked      1 question, 1 with a fitting reply" in shown
    assert "│ Which currency?" in shown
    found = json.loads(in_process("show", "asking", "quote", "--json").stdout)
    assert (found["result"], found["outcome"]["tool_calls"]) == ("passed", 3)
    assert found["outcome"]["questions"] == [{"question": "Which currency?", "reply": "currency", "said": None}]
