"""A trial whose agent meant harm to whoever looks at what it left."""

import tarfile

from run_builder import (
    GRADER,
    CheckResult,
    Finding,
    agent,
    entry,
    freeze,
    manifest,
    outcome,
    put,
    save,
    tar_of,
    task,
    verdict,
)

from orchestrator.dataset.rows import collect
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FinalAnswer
from orchestrator.storage.file import FileStore

RUN = "run-1"
TRIAL = TrialId("fix", "sly", 1)
ESCAPE = "\x1b[2J\x1b[1;31mPASSED\x1b]0;owned\x07"
MARKUP = "[bold green]PASSED[/] :smile:"
BIDI = "\u202etxt.exe\u2066"
PRISTINE = {
    "workspace/app.py": "def add(a, b):\n    return a - b\n",
    "workspace/same.txt": "same\n",
    "workspace/gone.txt": "gone\n",
}


class Folder:
    """A BundleSource of one folder."""

    def __init__(self, root):
        self.root = root

    async def fetch(self, audience, digest):
        assert audience == "sandbox"
        return self.root


def bundle(root):
    for name, text in PRISTINE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Folder(root)


def special(kind, **fields):
    info = tarfile.TarInfo()
    info.type = kind
    for name, value in fields.items():
        setattr(info, name, value)
    return info


def hostile_state():
    changed = b"def add(a, b):\n    return a + b  # " + ESCAPE.encode() + b"\n"
    entries = [
        entry("workspace/app.py", changed, origin="changed", mode=0o4755),
        entry("workspace/same.txt", b"same\n", origin="pristine"),
        entry("workspace/gone.txt", b"gone\n", origin="removed"),
        entry("workspace/blob.bin", b"\0\1\2" * 100),
        entry("workspace/" + MARKUP + BIDI, b"x\n"),
        entry("workspace/link", kind="symlink", target="/etc/shadow"),
        entry("workspace/pipe", kind="fifo", finding="special_file"),
        entry("workspace/../../escaped", b"out\n"),
        entry("/tmp/absolute", b"out\n"),
        entry("verdict.json", b"{}\n"),
        entry("workspace/link/through", b"out\n"),
        entry("workspace/deep/" + "/".join("d" * 200 for _ in range(30)), b"deep\n"),
        entry("output/final.json", b"{}\n"),
    ]
    tar = tar_of(
        [
            ("workspace/app.py", changed),
            ("workspace/blob.bin", b"\0\1\2" * 100),
            ("workspace/" + MARKUP + BIDI, b"x\n"),
            ("workspace/link", special(tarfile.SYMTYPE, linkname="/etc/shadow")),
            ("workspace/pipe", special(tarfile.FIFOTYPE)),
            ("workspace/dev", special(tarfile.CHRTYPE, devmajor=1, devminor=3)),
            ("workspace/../../escaped", b"out\n"),
            ("/tmp/absolute", b"out\n"),
            ("verdict.json", b"{}\n"),
            ("workspace/link/through", b"out\n"),
            ("workspace/deep/" + "/".join("d" * 200 for _ in range(30)), b"deep\n"),
            ("workspace/not-listed", b"smuggled\n"),
            ("output/final.json", b"{}\n"),
        ]
    )
    return entries, tar


def hostile_events():
    event = b'{"v":1,"seq":%d,"t":%d,"source":"gateway","type":"%s"%s}\n'
    said = '{"role":"assistant","parts":[{"type":"text","text":"\\u001b[2J[bold]hi\\u202e"}]}'
    answer = f',"model":"m","finish_reason":"stop","message":{said}'
    return (
        event % (0, 10, b"launch", b',"run":"run-1"')
        + event % (1, 12, b"model_response", answer.encode())
        + event % (2, 13, b"tool_call", rb',"name":"shell","arguments":"{\"command\": \"cat <<X\\n\\u001b[2J\"}"')
        + event % (3, 14, b"seal", b"")
    )


async def hostile_run(root, *, entries=None, tar=None, events=None):
    """Return store and rows of a run with one hostile trial."""
    store = FileStore(root / "store")
    if tar is None:
        entries, tar = hostile_state()
    state = await freeze(store, RUN, "s", entries, tar)
    output = await put(
        store,
        RUN,
        "o",
        ("line\n" * 100 + ESCAPE + "\n" + MARKUP + "\n" + "long" * 5000 + "\n").encode() + b"\xff\xfe\n",
    )
    trajectory = await put(store, RUN, "t", events or hostile_events())
    final = FinalAnswer(status="completed", message=f"{ESCAPE}\nresult   passed {MARKUP}{BIDI}", confidence="high")
    checks = (
        CheckResult(
            id="hidden_tests",
            type="command",
            passed=False,
            expected="exit 0",
            actual={"exit": 1, "text": ESCAPE},
            evidence=(f"test_add failed\n{ESCAPE}", MARKUP),
        ),
        CheckResult(id="blast_radius", type="diff", passed=True, expected=[], actual=[]),
        CheckResult(id="end", type="final", passed=False, actual="too long; no word", evidence=("too long", "no word")),
    )
    finding = Finding(type="setuid", detail=f"workspace/app.py {ESCAPE}")
    await save(
        store,
        manifest([task("fix", samples=1)], [agent("sly")], run=RUN),
        [
            outcome(RUN, TRIAL, reason="infra_lost", error="gateway died", cause="gateway"),
            outcome(
                RUN,
                TRIAL,
                launch=2,
                state=state,
                output=output,
                trajectory=trajectory,
                final=final,
                ended_as="completed",
                findings=(finding,),
            ),
        ],
        [verdict(RUN, TRIAL, "failed", launch=2, state=state, checks=checks, grader=GRADER)],
    )
    return store, await collect(store, RUN)
