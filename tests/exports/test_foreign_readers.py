"""Exports are read back by the libraries whose formats they are, each from its registry in an environment that is thrown away."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zipfile

import pytest
from told_run import RUN, told_run

from orchestrator.dataset.rows import collect
from orchestrator.exports.write import TRACE_FORMATS, Wish, export_traces
from orchestrator.wiring import event_reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HARBOR = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[2])
from harbor.models.trajectories import Trajectory
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    read = Trajectory.model_validate_json(path.read_text())
    found[path.name] = [read.schema_version, len(read.steps), len(read.subagent_trajectories or [])]
print(json.dumps(found))
"""
INSPECT = """
import json, pathlib, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.eval")):
    log = read_eval_log(str(path), resolve_attachments=True)
    (sample,) = log.samples
    inputs = [[message.role for message in event.input] for event in sample.events if event.event == "model"]
    summaries = read_eval_log_sample_summaries(str(path))
    accuracy = log.results.scores[0].metrics["accuracy"].value
    found[path.name] = [log.status, accuracy, sample.scores["orchestrate"].value, inputs, len(summaries)]
print(json.dumps(found))
"""
PROTO = """
import base64, json, sys
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
# OTLP has ids in hex where protobuf's own JSON has base64
def ids(value):
    if isinstance(value, list):
        return [ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {"traceId", "spanId", "parentSpanId"}
    return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in names else ids(v) for k, v in value.items()}
spans = [len(r.scope_spans[0].spans) for line in open(sys.argv[1] + "/traces.jsonl")
         for r in ParseDict(ids(json.loads(line)), ExportTraceServiceRequest()).resource_spans]
logs = [[x.event_name for x in r.scope_logs[0].log_records] for line in open(sys.argv[1] + "/logs.jsonl")
        for r in ParseDict(ids(json.loads(line)), ExportLogsServiceRequest()).resource_logs]
print(json.dumps([spans, logs]))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The told run in every format, with and without content."""
    folder = tmp_path_factory.mktemp("exports")

    async def live():
        store = await told_run(folder)
        data = await collect(store, RUN)
        for kind in TRACE_FORMATS:
            for content in (True, False):
                wish = Wish(kind=kind, folder=folder / f"{kind}-{content}", content=content)
                await export_traces(event_reader(store), data, wish)

    asyncio.run(live())
    return folder


def environment(folder, *packages):
    """Make an environment with packages of the registry. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    return python


def said(python, program, *words):
    done = subprocess.run([python, "-c", program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_harbor_and_protobuf_read_what_is_theirs(exported, tmp_path):
    """Harbor itself wants a later Python, so its models alone are taken out of its wheel."""
    python = environment(tmp_path / "env", "pydantic>=2,<3", "opentelemetry-proto==1.45.2")
    download = ["download", "-q", "--no-deps", "--ignore-requires-python", "-d", tmp_path, "harbor==0.26.0"]
    subprocess.run([python, "-m", "pip", *download], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("harbor-*.whl"))) as wheel:
        wheel.extractall(
            tmp_path / "harbor", [n for n in wheel.namelist() if n.startswith("harbor/models/trajectories/")]
        )
    for content in (True, False):
        found = said(python, HARBOR, exported / f"atif-{content}", tmp_path / "harbor")
        assert found == {"fix@mute:1.json": ["ATIF-v1.8", 1, 0], "fix@talker:1.json": ["ATIF-v1.8", 6, 1]}
        spans, logs = said(python, PROTO, exported / f"otel-{content}")
        assert sorted(spans) == [1, 9]
        assert sorted(map(len, logs)) == [2, 3]
        assert {name for each in logs for name in each} == {"gen_ai.evaluation.result"}


def test_inspect_reads_its_logs(exported, tmp_path):
    python = environment(tmp_path / "env", "inspect_ai==0.3.285")
    for content in (True, False):
        found = said(python, INSPECT, exported / f"inspect-{content}")
        assert found["mute.eval"] == ["success", 0.0, "I", [], 1]
        status, accuracy, score, inputs, summaries = found["talker.eval"]
        assert (status, accuracy, score, summaries) == ("success", 1.0, "C", 1)
        assert list(map(len, inputs)) == [2, 1, 5, 6]
        assert inputs[2] == ["system", "user", "assistant", "tool", "tool"]
