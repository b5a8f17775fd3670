"""Run mini-swe-agent on the task's instruction, then print how its trajectory says that it ended: the last line of the output."""

import json
import os
import subprocess
import sys

TRAJECTORY = "/tmp/trajectory.json"
MINI = "import sys; sys.path.insert(0, '/agent/packages'); from minisweagent.run.mini import app; app()"

with open("/task/instruction.md", encoding="utf-8") as file:
    instruction = file.read()
model = os.environ["ORCHESTRATE_MODEL"].partition("/")[2]
arguments = ["--model", f"openai/{model}", "--yolo", "--exit-immediately", "--cost-limit", "0", "--output", TRAJECTORY, "--task", instruction]
code = subprocess.run([sys.executable, "-s", "-c", MINI, *arguments], stdin=subprocess.DEVNULL).returncode
try:
    with open(TRAJECTORY, encoding="utf-8") as file:
        info = json.load(file)["info"]
except (OSError, ValueError, KeyError):
    sys.exit(code or 1)
print(json.dumps({"exit_status": info.get("exit_status"), "submission": info.get("submission")}))
sys.exit(code)
