"""The container backend at its edges: processes killed on either side, images that are odd or gone, and what an engine leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from container_world import WithImage, engine, image
from sandbox_world import backend, life, python, shell, spec_of, use

from orchestrator.errors import SandboxError
from orchestrator.interfaces import Input
from orchestrator.sandbox.container import owner, sweep
from orchestrator.sandbox.container.engine import LAUNCH_LABEL, OWNER_LABEL, EngineError
from orchestrator.spec.task import Environment

pytestmark = pytest.mark.container
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def containers(monkeypatch: pytest.MonkeyPatch) -> None:
    use("container", monkeypatch)


def running(word: str) -> list[int]:
    """Processes of this machine that have exactly that word in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def remove(image: str) -> None:
    await engine().call("image", "rm", "--", image)


async def of_launch(name: str) -> list[str]:
    """Containers that the engine knows of a launch."""
    return [each for each, value in (await engine().containers(LAUNCH_LABEL)).items() if value == name]


async def gone(name: str) -> None:
    async with asyncio.timeout(30):
        while await of_launch(name):
            await asyncio.sleep(0.05)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def first_process(pid: int) -> int:
    """The first process of the PID namespace of an agent's program, as the machine counts."""
    namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            numbers = (folder / "status").read_text().split("NSpid:")[1].split("\n")[0].split()
            if numbers[-1] == "1" and os.stat(folder / "ns/pid").st_ino == namespace:
                return int(folder.name)
    raise AssertionError("there is no first process")


def test_a_killed_keeper_leaves_neither_process_nor_container():
    async def scenario() -> None:
        code = "sleep 81.125 & (setsid sleep 81.125 &) ; exec sleep 81.125"
        async with backend().open(spec_of("sh", "-c", code, name="killed-keeper")) as sandbox:
            await until(lambda: len(running("81.125")) == 3)
            assert len(await of_launch("killed-keeper")) == 1
            sandbox._keeper.kill()
            with pytest.raises(SandboxError, match="its keeper ended with -9"):
                await sandbox.ended()
            await until(lambda: not running("81.125"))
            await gone("killed-keeper")

    asyncio.run(scenario())


def test_the_end_of_the_driver_ends_every_container():
    code = (
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import sandbox_world; from sandbox_world import *; sandbox_world.KIND = 'container'\n"
        "made = backend()\n"
        "async def one(): \n"
        "    async with made.open(spec_of('sleep', '82.125', name='abandoned')):\n"
        "        print('up', flush=True); await asyncio.sleep(60)\n"
        "async def main(): await asyncio.gather(*[one() for _ in range(4)])\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as driver:
        for _ in range(4):
            assert driver.stdout.readline() == b"up\n"
        asyncio.run(until(lambda: len(running("82.125")) == 4))
        driver.send_signal(signal.SIGKILL)
    asyncio.run(until(lambda: not running("82.125")))
    asyncio.run(gone("abandoned"))


def test_the_state_is_frozen_when_the_engines_monitor_is_killed():
    """Podman's conmon outlives its podman; without it nobody removes the container but the keeper."""

    async def act(sandbox) -> None:
        await until(lambda: running("83.125"))
        monitor = parent_of(first_process(running("83.125")[0]))
        assert monitor != 1
        os.kill(monitor, signal.SIGKILL)
        await asyncio.sleep(0.1)
        await sandbox.stop()

    if engine().kind != "podman":
        pytest.skip("Docker's daemon watches its monitors")
    seen = asyncio.run(life(spec_of("sh", "-c", "echo kept > f; exec sleep 83.125", name="no-monitor"), act))
    assert seen.ending.cause == "stopped"
    assert seen.content("workspace/f") == b"kept\n"
    assert asyncio.run(of_launch("no-monitor")) == []


def test_a_container_that_is_removed_by_somebody_is_our_failure_not_the_agents():
    async def scenario() -> None:
        async with backend().open(spec_of("sleep", "84.125", name="removed")) as sandbox:
            (container,) = await of_launch("removed")
            await engine().remove(container)
            with pytest.raises(SandboxError, match="stopped or removed by somebody else") as caught:
                await sandbox.ended()
            assert caught.value.cause == "sandbox_removed"

    asyncio.run(scenario())
    assert not running("84.125")


def test_containers_of_dead_owners_are_swept_and_those_of_live_ones_stay():
    async def scenario() -> tuple[list[str], list[str], list[str]]:
        boot, namespace, _, _ = owner.owner().split(".")
        dead = await engine().create(image(), {OWNER_LABEL: f"{boot}.{namespace}.4194304.1", LAUNCH_LABEL: "swept"})
        away = await engine().create(image(), {OWNER_LABEL: f"{boot}.1.4194304.1", LAUNCH_LABEL: "swept"})
        live = await engine().create(image(), {OWNER_LABEL: owner.owner(), LAUNCH_LABEL: "swept"})
        try:
            return [dead], await sweep.sweep(engine()), await of_launch("swept")
        finally:
            for each in (dead, away, live):
                await engine().remove(each)

    dead, swept, left = asyncio.run(scenario())
    assert set(dead) <= set(swept)
    assert len(left) == 2


@contextlib.asynccontextmanager
async def built(recipe: str) -> AsyncIterator[str]:
    """Yield the id of an image over the tests' own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(f"FROM {image().removeprefix('sha256:')}\n{recipe}\n")
        made = await engine().build(Path(folder))
    try:
        yield made.id
    finally:
        with contextlib.suppress(EngineError):
            await remove(made.id)


ODD = r"""
RUN mkdir -p /opt/own /open /etc/skel && chmod 777 /open && echo 'builder:x:7:7::/:/bin/sh' > /etc/passwd \
 && printf '#!/bin/sh\necho from the image\n' > /opt/own/tool && chmod 755 /opt/own/tool && ln -s /etc/skel /task
ENV PATH=/opt/own:/usr/local/bin:/bin OWN="a b" HOME=/root
ENTRYPOINT ["/bin/false"]
USER 4242
WORKDIR /nowhere
VOLUME /volume
HEALTHCHECK CMD /bin/false
"""


def test_what_an_image_says_of_itself_is_honoured_as_far_as_it_is_files_and_variables():
    async def scenario() -> str:
        async with built(ODD) as made:
            code = (
                'tool; echo "$OWN" "$HOME" "$PWD"; tail -n 2 /etc/passwd | sed s/$(id -u)/ID/g; cat /task/note; '
                "for p in /open /volume /opt/own /etc /; do touch $p/x 2>/dev/null && echo $p; done; true"
            )
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "note").write_text("laid\n")
                given = (Input(source=Path(folder), target="/task"),)
                seen = await life(spec_of("sh", "-c", code, image=made, inputs=given, workdir="/testbed"))
            return seen.output

    assert asyncio.run(scenario()).splitlines() == [
        "from the image", "a b /home/agent /testbed", "builder:x:7:7::/:/bin/sh",
        "agent:x:ID:ID:agent:/home/agent:/bin/sh", "laid",
    ]  # fmt: skip


def test_links_of_an_image_lead_nowhere_but_into_the_image():
    async def scenario() -> str:
        async with built("RUN ln -s /etc /workspace") as made:
            seen = await life(spec_of("sh", "-c", "echo x > f && ls /etc | grep -c '^f$'", image=made))
            return seen.output

    assert asyncio.run(scenario()) == "1\n"  # the image's own /etc is what the workspace covers, for this sandbox alone
    assert not Path("/etc/f").exists()


def test_an_image_without_a_shell_is_named_before_a_run():
    async def scenario() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
            made = await engine().build(Path(folder))
        try:
            return await backend().lacking([Environment(image=made.id)])
        finally:
            await remove(made.id)

    (said,) = asyncio.run(scenario())
    assert said.startswith("image sha256:")
    assert "/bin/sh" in said


def test_what_is_required_is_looked_up_in_the_image():
    said = asyncio.run(backend().lacking([Environment(image=image(), requires=("sh", "python3", "no-such-tool"))]))
    assert said == [f"requires no-such-tool: not found in image {image()}; add it there, or take it out of 'requires'"]


def test_an_image_that_is_not_here_is_our_failure_and_named():
    nowhere = "sha256:" + "1" * 64
    with pytest.raises(SandboxError, match=nowhere) as caught:
        shell("true", image=nowhere)
    assert caught.value.cause == "image_missing"


def test_an_image_that_is_removed_while_a_sandbox_runs_disturbs_nothing():
    async def scenario() -> str:
        async with built("RUN echo kept > /kept") as made:

            async def act(sandbox) -> None:
                with contextlib.suppress(EngineError):  # an engine may refuse while it is used
                    await remove(made)

            return (await life(spec_of("sh", "-c", "sleep 0.5; cat /kept", image=made), act)).output

    assert asyncio.run(scenario()) == "kept\n"


def test_an_engine_that_fails_is_our_failure_with_its_words(tmp_path):
    program = tmp_path / "podman"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *inspect*) exec podman "$@";; esac\necho "no space left on device" >&2; exit 125\n'
    )
    program.chmod(0o755)
    made = WithImage(tmp_path)
    made.inner.engine = replace(made.engine, command=(str(program), *made.engine.command[1:]))
    made.inner._images[made.image] = asyncio.run(engine().present(made.image))

    async def scenario() -> None:
        async with made.open(spec_of("true")):
            pytest.fail("it must not open")

    with pytest.raises(SandboxError, match="no space left on device") as caught:
        asyncio.run(scenario())
    assert caught.value.cause == "sandbox_engine"


def test_an_engine_of_another_machine_is_found_out(tmp_path):
    """Its process ids mean nothing here, and the process that has such an id is somebody else's."""
    made = WithImage(tmp_path)
    program = tmp_path / "podman"
    told = f'for w; do [ "$last" = --pidfile ] && printf {os.getpid()} > "$w"; last=$w; done'
    program.write_text(f'#!/bin/sh\ncase "$*" in *" run "*) {told}; exit 0;; esac\nexec podman "$@"\n')
    program.chmod(0o755)
    made.inner._images[made.image] = asyncio.run(engine().present(made.image))
    made.inner.engine = replace(made.engine, kind="podman", command=(str(program), "--log-level=error"))

    async def scenario() -> None:
        async with made.open(spec_of("true")):
            pytest.fail("it must not open")

    with pytest.raises(SandboxError, match=f"process {os.getpid()} of this machine is not the container's"):
        asyncio.run(scenario())


def test_nothing_of_the_engine_is_inside():
    seen = shell("ls -a /run /var/run 2>/dev/null; cat /proc/self/mounts; env; cat /proc/1/cmdline")
    for word in ("podman", "docker", "containerd", "orchestrate"):
        assert word not in seen.output.replace("/var/lib/containers", "").replace(".containerenv", "")


def test_descendants_of_the_program_are_reaped():
    seen = python(
        "import os, subprocess, time\n"
        "for n in range(50): subprocess.run(['sh', '-c', '(sleep 0.01 &)'])\n"
        "time.sleep(0.3)\n"
        "states = [open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[0] for p in os.listdir('/proc') if p.isdigit()]\n"
        "print(states.count('Z'))"
    )
    assert seen.output == "0\n"


def test_the_agent_cannot_end_its_container():
    seen = shell("kill -9 1; kill -9 -1; sleep 0.2; echo alive; kill -9 2; echo still")
    assert seen.ending.cause == "exited"
    assert "alive\n" in seen.output


def test_a_terminal_can_be_opened():
    seen = python("import os, pty\na, b = pty.openpty(); os.write(b, b'x'); print(os.read(a, 1))")
    assert seen.output == "b'x'\n"


def test_preflight_says_engine_and_shared_kernel():
    labels = asyncio.run(backend().preflight())
    assert labels["kernel"] == "shared"
    assert labels["engine"].startswith(engine().kind)
    assert json.dumps(labels)


def test_an_engine_leaves_no_file_where_the_program_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    hog = spec_of(
        "python3", "-c", "x = []\nwhile True: x.append(b'x' * (1 << 20))", requires=("python3",), disk_bytes=8 << 20
    )
    assert asyncio.run(life(hog)).ending.cause == "out_of_memory"
    assert list(tmp_path.iterdir()) == []
