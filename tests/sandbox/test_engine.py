"""What is decided about containers without an engine: which one, with which words, whose container it is, and what a failure means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import RefusedError
from orchestrator.sandbox.container import engine as module
from orchestrator.sandbox.container import owner
from orchestrator.sandbox.container.backend import ContainerBackend
from orchestrator.sandbox.container.engine import Container, Engine, find_engine
from orchestrator.sandbox.container.explain import explain
from orchestrator.sandbox.keeper import cgroup
from orchestrator.settings import engine_variables, load_settings
from orchestrator.spec.task import Environment, RepositoryWorkspace

PINNED = "sha256:" + "a" * 64
DOCKER = Engine("docker", ("docker",))
PODMAN = Engine("podman", ("podman",))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own; what is put there is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_podman_is_taken_before_docker_and_either_before_none(installed: Path):
    with pytest.raises(RefusedError, match=r"neither is installed .*apt-get install podman"):
        find_engine(None)
    install(installed, "docker")
    assert find_engine(None).command == ("docker",)
    install(installed, "podman")
    assert find_engine(None).kind == "podman"


def test_a_setting_names_engine_and_options(installed: Path):
    install(installed, "podman", "docker")
    found = find_engine("docker -H 'unix:///a b.sock'")
    assert (found.kind, found.command) == ("docker", ("docker", "-H", "unix:///a b.sock"))
    assert str(found) == "docker -H 'unix:///a b.sock'"
    with pytest.raises(RefusedError, match="there is no program nerdctl"):
        find_engine("nerdctl")


def test_podman_is_told_what_this_machine_needs(installed: Path, monkeypatch: pytest.MonkeyPatch):
    install(installed, "podman")
    monkeypatch.setattr(module, "_SYSTEMD", installed / "no-systemd")
    monkeypatch.setattr(module, "_HYBRID", installed / "no-hybrid")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_engine(None).command == ("podman", "--cgroup-manager=cgroupfs")
    assert find_engine("podman --root /r").command == ("podman", "--root", "/r")
    monkeypatch.setattr(module, "_SYSTEMD", installed)
    assert find_engine(None).command == ("podman",)


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_a_container_is_started_with_nothing_that_it_does_not_need(engine: Engine):
    wanted = Container(
        name="n", image=PINNED, labels={"a": "b"}, user="65534:65534", memory_bytes=1 << 20, processes=7, cpu=0.5,
        command=("/bin/sh", "-c", "x"), pidfile="/p",
    )  # fmt: skip
    words = engine.run_words(wanted)
    said = " ".join(words)
    for part in (
        "--network none", "--read-only", "--cap-drop all", "no-new-privileges", "--pull never", "--user 65534:65534", "--rm",
        "--memory 1048576 --memory-swap 1048576", "--pids-limit 7", "--cpus 0.500", "--entrypoint /bin/sh", "--label a=b",
    ):  # fmt: skip
        assert part in said
    assert words[-3:] == [PINNED, "-c", "x"]
    for part in ("--volume", "-v", "--mount", "--privileged", "--env", "--publish", "--device"):
        assert part not in words


def test_variables_for_an_engine_hold_no_secret_of_ours():
    given = {
        "PATH": "/bin",
        "HOME": "/root",
        "DOCKER_HOST": "unix:///d",
        "OPENAI_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    assert engine_variables(given) == {"PATH": "/bin", "HOME": "/root", "DOCKER_HOST": "unix:///d"}


def test_the_engine_is_a_setting(tmp_path: Path):
    (tmp_path / "orchestrate.toml").write_text('container_engine = "podman --root /r"\n')
    assert load_settings(tmp_path, {}).container_engine == "podman --root /r"
    assert load_settings(tmp_path, {"ORCHESTRATE_CONTAINER_ENGINE": "docker"}).container_engine == "docker"


def test_refusals_name_what_cannot_be_given_and_the_way_out():
    backend = ContainerBackend(Path("/nonexistent"), PODMAN)
    assert backend.refusals(Environment(image=PINNED)) == []
    for environment, words in (
        (Environment(), ("image:", "build:", "--backend bubblewrap")),
        (Environment(build="environment/"), ("not pinned", "orchestrate images lock")),
        (Environment(image="python:3.12"), ("python:3.12", "orchestrate images lock")),
        (Environment(image=PINNED, isolation="gvisor"), ("isolation gvisor",)),
        (Environment(image=PINNED, user="root"), ("user: agent",)),
        (Environment(image=PINNED, workdir="/etc/x"), ("/etc/x", "/workspace")),
        (Environment(image=PINNED, workspace=RepositoryWorkspace(repository="x", commit="82c41d9")), ("repository",)),
    ):
        (sentence,) = backend.refusals(environment)
        for word in words:
            assert word in sentence


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("error setting rlimit type 7: operation not permitted", "CAP_SYS_RESOURCE"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "systemctl start docker"),
        ("sd-bus call: Connection refused", "--cgroup-manager=cgroupfs"),
        ("cgroups in hybrid mode not supported", "install runc"),
        ("the engine did not limit the container's memory", "/sys/fs/cgroup"),
        ("mount: operation not permitted", "CAP_SYS_ADMIN"),
        ("write /var/lib: no space left on device", "prune"),
    ],
)  # fmt: skip
def test_a_failure_comes_with_what_to_change(said: str, change: str):
    told = explain(PODMAN, said)
    assert change in told
    assert said in told


def test_only_a_process_that_is_certainly_gone_gives_its_containers_up():
    boot, namespace, pid, start = owner.owner().split(".")
    assert not owner.is_gone(owner.owner())
    assert owner.is_gone(f"{boot}.{namespace}.{pid}.1")
    assert owner.is_gone(f"{boot}.{namespace}.4194304.{start}")
    assert owner.is_gone(f"another-boot.{namespace}.{pid}.{start}")
    assert not owner.is_gone(f"{boot}.1.4194304.{start}")  # another PID namespace: it cannot be told from here
    assert not owner.is_gone("something else")


LIMITS = {"memory": 100 << 20, "pids": 10, "cpu": 0.5}


def test_groups_of_an_engine_are_taken_as_far_as_they_hold_the_limits(tmp_path: Path):
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("5:memory:/c/x\n4:pids:/c/x\n3:cpu,cpuacct:/c/x\n2:devices:/c/x\n0::/\n")
    for name, files in {
        "memory": {"memory.limit_in_bytes": 100 << 20, "memory.oom_control": "oom_kill 0"},
        "pids": {"pids.max": 10, "pids.events": "max 3"},
        "cpu": {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000},
        "devices": {"cgroup.procs": ""},
    }.items():
        (tmp_path / "sys" / name / "c/x").mkdir(parents=True)
        for file, value in files.items():
            (tmp_path / "sys" / name / "c/x" / file).write_text(f"{value}\n")
    group = cgroup.adopt(7, LIMITS, str(tmp_path / "proc"), str(tmp_path / "sys"))
    assert group.controllers == {"memory", "pids"}
    (tmp_path / "sys/memory/c/x/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    group.remember()
    for file in ("memory/c/x/memory.oom_control", "pids/c/x/pids.events"):
        (tmp_path / "sys" / file).unlink()
    assert (group.oom_kills(), group.refused_forks()) == (2, 3)
    assert group.remove() == []
    assert (tmp_path / "sys/memory/c/x").is_dir()


@pytest.mark.parametrize(("memory", "held"), [("104857600", True), ("max", False), ("209715200", False)])
def test_groups_of_version_2_are_read_the_same_way(tmp_path: Path, memory: str, held: bool):
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/x.scope\n")
    folder = tmp_path / "sys/x.scope"
    folder.mkdir(parents=True)
    for file, text in {
        "cgroup.controllers": "cpu memory pids", "cgroup.procs": "", "memory.max": memory, "pids.max": "10", "cpu.max": "50000 100000",
    }.items():  # fmt: skip
        (folder / file).write_text(f"{text}\n")
    group = cgroup.adopt(7, LIMITS, str(tmp_path / "proc"), str(tmp_path / "sys"))
    assert group.controllers == ({"memory", "pids", "cpu"} if held else {"pids", "cpu"})
