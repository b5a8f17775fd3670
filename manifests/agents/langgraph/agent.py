"""An agent as a graph: a model that chooses, a node that runs what it chose, until it finishes. Tools are a shell and those of the gateway."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages"))

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command with sh in the workspace and return its output and exit code.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
SECONDS = 120
MOST = 10_000


def gateway(path, body=None):
    """Ask the gateway; what it refuses is an answer, too."""
    headers = {"Authorization": f"Bearer {os.environ['ORCHESTRATE_TOKEN']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(os.environ["ORCHESTRATE_GATEWAY"] + path, data, headers)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"error": error.read().decode("utf-8", "replace")}


def shell(command):
    try:
        done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        return f"{done.stdout.decode('utf-8', 'replace')[-MOST:]}\n[exit code {done.returncode}]"
    except subprocess.TimeoutExpired:
        return f"[timed out after {SECONDS} s]"


def main():
    tools = [SHELL, *gateway("/tools")["tools"]]
    model = ChatOpenAI(model=os.environ["ORCHESTRATE_MODEL"], max_retries=2).bind_tools(tools)

    def think(state: MessagesState):
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState):
        results = []
        for call in state["messages"][-1].tool_calls:
            name, arguments = call["name"], call["args"]
            text = shell(str(arguments.get("command", ""))) if name == "shell" else json.dumps(gateway(f"/tools/{name}", arguments))
            results.append(ToolMessage(text, tool_call_id=call["id"], name=name))
        return {"messages": results}

    def chosen(state: MessagesState):
        return "act" if state["messages"][-1].tool_calls else END

    def finished(state: MessagesState):
        return END if any(isinstance(m, ToolMessage) and m.name == "finish" and "error" not in m.content for m in state["messages"]) else "think"

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", chosen)
    graph.add_conditional_edges("act", finished)
    with open("/task/instruction.md", encoding="utf-8") as file:
        instruction = file.read()
    graph.compile().invoke({"messages": [HumanMessage(instruction)]}, {"recursion_limit": 1000})


main()
