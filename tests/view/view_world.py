"""A page that is served, over a store with a hostile trial, over made runs, or over a file."""

import contextlib
import json

import aiohttp
from aiohttp import web
from demo_run import demo
from hostile_state import BIDI, ESCAPE, bundle, hostile_run
from run_builder import agent, manifest, outcome, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.driver.lookout import Sight
from orchestrator.driver.standing import Standing
from orchestrator.errors import NotFoundError
from orchestrator.records.ids import TrialId
from orchestrator.settings import load_settings
from orchestrator.view.guard import Guard
from orchestrator.view.one import Files
from orchestrator.view.runs import Loaded
from orchestrator.view.server import application
from orchestrator.view.site import Site, Start, store_site

EVIL = (
    '<script>window.hacked="script"</script><img src=x onerror="window.hacked=\'img\'"><svg onload=alert(1)>'
    '<a href="javascript:alert(2)">click</a><iframe src="http://evil.test/"></iframe>'
    "<style>body{display:none}</style><link rel=stylesheet href=//evil.test/x.css>"
    "<meta http-equiv=refresh content='0;url=http://evil.test/'>]]></pre></div>&lt;b&gt;{{7*7}}${alert(3)}"
    f"{ESCAPE}{BIDI}\u200b\x00\u3164"
)
"""What an agent writes to attack whoever reads it."""


def line(seq, kind, source="gateway", /, **data):
    """Return one line of a trajectory."""
    return json.dumps({"v": 1, "seq": seq, "t": 100.0 + seq, "source": source, "type": kind, **data}).encode() + b"\n"


def message(role, text, *calls):
    parts = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "tool_call", "id": name, "name": name, "arguments": arguments} for name, arguments in calls]
    return {"role": role, "parts": parts}


def step(seq, text, *, tool="shell", arguments='{"command": "ls"}', said="go on", result="fine"):
    """Return the four events of a step as lines, the first being number ``seq``."""
    asked = message("assistant", text, (tool, arguments))
    return [
        line(
            seq,
            "model_request",
            model="p/m",
            endpoint="chat",
            conversation=0,
            total=2,
            messages=[{"index": 0, **message("user", said)}],
        ),
        line(
            seq + 1,
            "model_response",
            request=seq,
            model="m-1",
            message=asked,
            finish_reason="tool_calls",
            tokens={"uncached_input": 5, "output": 7, "cost_nano_usd": 1200},
            seconds=0.5,
        ),
        line(
            seq + 2, "tool_call", "agent", request=seq, id=tool, name=tool, arguments=arguments, known=True, valid=True
        ),
        line(seq + 3, "tool_result", "agent", id=tool, content=result, is_error=False),
    ]


def hostile_lines():
    """Return a trajectory in which every text is an attack."""
    lines = [line(0, "launch", trial="fix@sly:1", run=EVIL, launch=1, budgets={EVIL: 1}, models={"main": EVIL})]
    lines += step(1, EVIL, tool=EVIL, arguments=json.dumps({EVIL: EVIL, "b": [EVIL]}), said=EVIL, result=EVIL)
    lines += [
        line(5, "refusal", what=EVIL, status=400, kind=EVIL, code=EVIL, message=EVIL),
        line(6, "finding", kind="odd", detail=EVIL),
        line(7, "egress", host=EVIL, port=443, outcome=EVIL, reason=EVIL, unknown_field={EVIL: [EVIL]}),
        line(8, "finish", status="completed", message=EVIL, confidence=EVIL),
        line(9, "seal", sha256_before="0"),
    ]
    return lines


class MadeRuns:
    """Runs that are not in a store."""

    def __init__(self, *found):
        self.found = {data.manifest.run: Loaded(Standing(data, Sight(None))) for data in found}

    async def get(self, run):
        if run not in self.found:
            raise NotFoundError(run)
        return self.found[run]

    async def list(self, most):
        lines = [
            {**loaded.head(), "agents": ["a"], "ended": 1, "rerun_of": None, "counts": {"passed": 1}, "problem": None}
            for loaded in self.found.values()
        ]
        return {"runs": lines[:most], "more": max(0, len(lines) - most), "notes": []}


def many(tasks=50, agents=2, samples=50, run="big"):
    """Return a run with very many trials."""
    made = manifest(
        [task(f"task-{n:02d}", samples=samples) for n in range(tasks)], [agent(f"a{n}") for n in range(agents)], run=run
    )
    outcomes, verdicts = [], []
    for number, trial in enumerate(made.trials()):
        outcomes.append(outcome(run, trial, cost=number, working=1 + number % 90))
        verdicts.append(verdict(run, trial, "failed" if number % 3 else "passed"))
    return assemble(made, outcomes, verdicts)


@contextlib.asynccontextmanager
async def served(site):
    """Yield the address of a page."""
    guard = Guard("token-of-this-test")
    runner = web.AppRunner(application(site, guard), access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield guard.listen_at(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def hostile_site(folder, **more):
    """Return a page over a store with one hostile trial."""
    store, _ = await hostile_run(folder, events=b"".join(hostile_lines()), **more)
    settings = load_settings(folder, overrides={"store": str(folder / "store"), "cache": str(folder / "cache")})
    return store_site(Start(store=EVIL), store, bundle(folder / "bundle"), settings)


def made_site(*found):
    """Return a page over made runs, whose trials have no files."""
    return Site(Start(store="made"), runs=MadeRuns(*found), files=Files(None, None))


@contextlib.asynccontextmanager
async def asking(site):
    """Yield ``ask(name, **query) -> (status, value)`` about a page."""
    async with served(site) as address, aiohttp.ClientSession() as session:

        async def ask(name, **query):
            async with session.get(
                f"{address}api/{name}", params={key: str(value) for key, value in query.items()}
            ) as answer:
                return answer.status, await answer.json()

        yield ask


__all__ = ["TrialId", "demo"]
