"""Launches as pods: what is in them, what must be, and what differs between two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pod_world import LIMITS, OWNER, SETTINGS, bundled, door_of, react, spec_of

from orchestrator.errors import SandboxError
from orchestrator.interfaces import BundledInput, BundleRef, Door, Input, SandboxLimits
from orchestrator.records.ids import launch_id
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.render import render
from orchestrator.settings import Kubernetes
from orchestrator.settings.kubernetes import RuntimeClasses, Toleration

SNAPSHOTS = Path(__file__).parent / "snapshots"
EVERYTHING = SETTINGS.model_copy(
    update={
        "runtime_classes": RuntimeClasses(gvisor="gvisor", vm="kata"),
        "node_selector": {"pool": "trials"},
        "tolerations": (Toleration(key="trials", operator="Exists", effect="NoSchedule"),),
        "denied": ("198.18.96.1:443",),
        "topology_spread": "kubernetes.io/hostname",
        "pull_secrets": ("registry",),
        "queue": "trials",
        "scheduler_name": "volcano",
        "priority_class": "orchestrate-trial",
    }
)
SOLUTION = BundledInput(bundle=BundleRef(audience="solutions", digest="sha256:" + "2" * 64), target="/solution")
CASES: dict[str, tuple[Any, Kubernetes]] = {
    "plain": (spec_of("true"), SETTINGS),
    "oracle": (
        spec_of(
            "sh",
            "/solution/solve.sh",
            bundled=(bundled("workspace", "/testbed", writable=True), SOLUTION),
            workdir="/testbed",
        ),
        SETTINGS,
    ),
    "react": (
        spec_of("python3", "-I", "-S", "/agent/react.py", inputs=(react(),), stdin=b'{"prompt": null}'),
        SETTINGS,
    ),
    "root": (spec_of("true", user="root", image="registry.example/own@sha256:" + "3" * 64), SETTINGS),
    "mounted": (spec_of("/agent/run", mounted="registry.example/agent@sha256:" + "4" * 64), SETTINGS),
    "gvisor": (spec_of("true", isolation="gvisor", user="root"), EVERYTHING),
    "everything": (spec_of("true", isolation="vm", exclude=("**/node_modules/**",)), EVERYTHING),
}


@pytest.mark.parametrize("name", CASES)
def test_pods_are_as_they_were_seen_by_a_person(name: str) -> None:
    """After a change on purpose: remove the file, run twice, and read the difference."""
    spec, wanted = CASES[name]
    pod, file = render(spec, OWNER, wanted), SNAPSHOTS / f"{name}.json"
    text = json.dumps(pod, indent=1, sort_keys=True) + "\n"
    if not file.exists():
        file.write_text(text)
        pytest.fail(f"{file.name} was not there and is written now")
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_cluster_knows_each_field(name: str) -> None:
    spec, wanted = CASES[name]
    kubernetes_validate.validate(render(spec, OWNER, wanted), "1.37", strict=True)


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod["spec"]["initContainers"]
    yield from pod["spec"]["containers"]


def check_hardened(pod: dict[str, Any]) -> None:
    """What a pod of a user that is not root must have, whatever it was made from."""
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"], spec["shareProcessNamespace"]) == (
        False,
    ) * 3
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    assert not spec.keys() & {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "nodeName",
        "ephemeralContainers",
        "resourceClaims",
        "hostAliases",
    }
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == names.POD_UID
    assert all(set(volume) == {"name", "emptyDir"} and volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"])
    for container in containers(pod):
        context = container["securityContext"]
        assert context["runAsNonRoot"]
        assert context["runAsUser"] == context["runAsGroup"] == names.POD_UID
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert not context["privileged"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert set(container["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
        assert all("secretKeyRef" not in variable.get("valueFrom", {}) for variable in container["env"])
        assert "envFrom" not in container
    agent = next(each for each in containers(pod) if each["name"] == names.AGENT)
    writable = {mount["mountPath"] for mount in agent["volumeMounts"] if not mount.get("readOnly")}
    assert not writable & {"/ctl", "/task", "/memory", "/agent", "/solution"}
    assert agent["command"][:3] == ["/ctl/supervisor", "run", "--"]
    assert pod["metadata"]["labels"][names.NET_CLASS] == "gateway"
    assert spec["activeDeadlineSeconds"] > spec["terminationGracePeriodSeconds"]


def expand(text: str, values: dict[str, str]) -> str:
    """Do as the kubelet does with ``$(NAME)`` and ``$$``."""
    done, left = "", text
    while left:
        head, dollar, left = left.partition("$")
        done += head
        if left.startswith("$"):
            done, left = done + "$", left[1:]
        elif left.startswith("(") and ")" in left:
            name, _, rest = left[1:].partition(")")
            done, left = done + values.get(name, f"$({name})"), rest
        else:
            done += dollar
    return done


def seen_by_agent(pod: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return command and environment as the agent's container gets them."""
    agent = next(each for each in containers(pod) if each["name"] == names.AGENT)
    env: dict[str, str] = {}
    for variable in agent["env"]:
        if "value" in variable:
            env[variable["name"]] = expand(variable["value"], env)
        else:
            path = variable["valueFrom"]["fieldRef"]["fieldPath"]
            env[variable["name"]] = pod["metadata"]["annotations"][
                path.removeprefix("metadata.annotations['").removesuffix("']")
            ]
    return [expand(word, env) for word in agent["command"][3:]], env


def test_an_agents_own_files_have_room_beside_the_tasks_disk() -> None:
    agent = BundledInput(bundle=BundleRef(audience="sandbox", digest="sha256:" + "4" * 64), target="/agent")
    small, large = (
        render(spec_of("true", bundled=(replace(agent, extra_bytes=extra),)), OWNER, SETTINGS)["spec"]
        for extra in (0, 400 << 20)
    )

    def rooms(pod: dict[str, Any]) -> tuple[dict[str, int], int, int]:
        sizes = {each["name"]: int(each["emptyDir"]["sizeLimit"]) for each in pod["volumes"]}
        resources = pod["containers"][0]["resources"]
        return sizes, *(int(resources[kind]["ephemeral-storage"]) for kind in ("requests", "limits"))

    (before, *ephemeral_before), (after, *ephemeral_after) = rooms(small), rooms(large)
    more = after.pop("inputs") - before.pop("inputs")
    assert more > 440 << 20
    assert before == after
    assert [b + more for b in ephemeral_before] == ephemeral_after


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TRICKY = (
    st.sampled_from(["$(HOME)", "$$", "$", "http://198.18.96.7:8080/v1", "$(ORCHESTRATE_TOKEN)", "agent-", "Bearer "])
    | WORDS
)
TOKEN = door_of(launch_id("run-1", "t@a:1", 1)).agent_token


@settings(max_examples=60)
@given(
    command=st.lists(TRICKY | st.just(TOKEN), min_size=1, max_size=4).filter(lambda words: words[0] != ""),
    env=st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True), TRICKY | st.just(f"Bearer {TOKEN}"), max_size=4
    ),
    cpu=st.floats(0.001, 64),
    memory=st.integers(1, 1 << 40),
    disk=st.integers(1, 1 << 40),
    wall=st.floats(0.1, 1e6),
    stdin=st.binary(max_size=200),
    exclude=st.lists(WORDS, max_size=2),
)
def test_any_launch_is_hardened_and_sees_what_it_was_given(
    command: list[str],
    env: dict[str, str],
    cpu: float,
    memory: int,
    disk: int,
    wall: float,
    stdin: bytes,
    exclude: list[str],
) -> None:
    limits = SandboxLimits(cpu=cpu, memory_bytes=memory, disk_bytes=disk, processes=64, wall_seconds=wall)
    door = door_of(launch_id("run-1", "t@a:1", 1))
    ours = {"ORCHESTRATE_GATEWAY": door.address, "ORCHESTRATE_TOKEN": door.agent_token}
    spec = spec_of(*command, env=env | ours, limits=limits, stdin=stdin, exclude=tuple(exclude), door=door)
    pod = render(spec, OWNER, SETTINGS)
    check_hardened(pod)
    words, seen = seen_by_agent(pod)
    assert words == command
    own = {"HOME": "/home/agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    assert seen == own | env | ours


def badness(container: dict[str, Any], used: int, capacity: int) -> int:
    """Return how soon the kernel ends a process of a container of a pod that is Burstable: what it uses, and what the kubelet adds.

    That is ``oom_score_adj`` thousandths of the node's memory, from 2 to 999: 1000 less the share of it that the container asked for.
    """
    asked = int(container["resources"]["requests"]["memory"])
    adjusted = min(999, max(2, 1000 - 1000 * asked // capacity))
    return used + adjusted * capacity // 1000


@given(
    share=st.floats(0.01, 1.0),
    memory=st.integers(32 << 20, 16 << 30),
    beyond=st.integers(0, 16 << 30),
    capacity=st.integers(4 << 30, 64 << 30),
)
@example(share=0.5, memory=32 << 20, beyond=0, capacity=67_108_864_001)
@example(share=1.0, memory=16 << 30, beyond=0, capacity=64 << 30)
@settings(max_examples=300)
def test_a_node_that_runs_out_of_memory_ends_an_agent_before_any_of_our_programs(
    share: float, memory: int, beyond: int, capacity: int
) -> None:
    """Of whatever pod, once it takes more than it asked for and than a freezer does: 28 MiB for 50,000 files that an agent has made."""
    limits = SandboxLimits(cpu=1, memory_bytes=memory, disk_bytes=1 << 20, processes=64, wall_seconds=60)
    pod = render(spec_of("true", limits=limits), OWNER, SETTINGS.model_copy(update={"memory_request_share": share}))
    agent, freezer = pod["spec"]["containers"]
    asked, most = (int(agent["resources"][each]["memory"]) for each in ("requests", "limits"))
    used = min(most, asked + 1 + beyond)
    most_of_freezer = 32 << 20
    assert used <= max(asked, most_of_freezer) or badness(freezer, most_of_freezer, capacity) < badness(
        agent, used, capacity
    )


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 1.0])
def test_prepare_asks_for_memory_that_its_pod_is_given_anyway(share: float) -> None:
    pod = render(spec_of("true"), OWNER, SETTINGS.model_copy(update={"memory_request_share": share}))
    (prepare,) = pod["spec"]["initContainers"]
    later = sum(int(each["resources"]["requests"]["memory"]) for each in pod["spec"]["containers"])
    asked, most = (int(prepare["resources"][each]["memory"]) for each in ("requests", "limits"))
    assert asked == min(most, later)


def test_launches_of_a_class_differ_in_name_and_annotations_only() -> None:
    def made(launch: int, address: str) -> dict[str, Any]:
        door = door_of(
            launch_id("run-1", "t@a:1", launch),
            address=address,
            index=launch,
            instance=f"i{launch}",
            relay=f"http://r{launch}",
        )
        env = {
            "ORCHESTRATE_GATEWAY": address,
            "ORCHESTRATE_TOKEN": door.agent_token,
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": door.agent_token,
            "HEADERS": f"Authorization=Bearer {door.agent_token},x={address}",
        }
        return render(spec_of("agent", launch=launch, door=door, env=env), OWNER, SETTINGS)

    one, other = made(1, "http://198.18.96.7:8080"), made(2, "http://198.18.96.99:8080")
    shape = names.SPEC_SHA256
    assert one["metadata"]["annotations"][shape] == other["metadata"]["annotations"][shape]
    assert one["metadata"]["name"] != other["metadata"]["name"]
    for pod in (one, other):
        del pod["metadata"]["name"], pod["metadata"]["annotations"]
    assert one == other


def test_another_image_is_another_shape() -> None:
    one = render(spec_of("true"), OWNER, SETTINGS)
    other = render(spec_of("true", image="registry.example/other@sha256:" + "4" * 64), OWNER, SETTINGS)
    assert one["metadata"]["annotations"][names.SPEC_SHA256] != other["metadata"]["annotations"][names.SPEC_SHA256]


def test_tokens_reach_their_own_container_only() -> None:
    pod = render(spec_of("true"), OWNER, SETTINGS)
    text = json.dumps(pod["spec"])
    launch = spec_of().name
    assert launch not in text
    for container, own in (
        (names.PREPARE, names.PREPARE_TOKEN),
        (names.AGENT, names.AGENT_TOKEN),
        (names.FREEZER, names.FREEZER_TOKEN),
    ):
        found = json.dumps(next(each for each in containers(pod) if each["name"] == container))
        assert own in found
        assert not [
            token
            for token in (names.PREPARE_TOKEN, names.AGENT_TOKEN, names.FREEZER_TOKEN)
            if token != own and token in found
        ]


def test_root_has_a_user_namespace_or_gvisor() -> None:
    assert render(spec_of(user="root"), OWNER, SETTINGS)["spec"]["hostUsers"] is False
    boxed = render(spec_of(user="root", isolation="gvisor"), OWNER, EVERYTHING)["spec"]
    assert "hostUsers" not in boxed
    assert boxed["runtimeClassName"] == "gvisor"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Upper"}, "lower-case letters"),
        ({"env": {"A-B": "x"}}, "variable 'A-B' has no valid name"),
        ({"env": {"A": "x\0"}}, "zero byte"),
        ({"inputs": (Input(source=Path("/home/me/files"), target="/agent"),)}, "/home/me/files is on this machine"),
        ({"bundled": (bundled("task", "/task/deeper"),)}, "input target '/task/deeper'"),
        ({"packages": (Path("/x"),)}, "for sandboxes of this machine"),
        ({"door": Door(socket="/s", token="t")}, "needs the door of a pod"),
        ({"stdin": b"x" * 200_000}, "shorten the agent's prompt"),
    ],
)
def test_what_no_pod_can_be_made_from_is_named(fields: dict[str, Any], message: str) -> None:
    spec = replace(spec_of("true"), **fields)
    with pytest.raises(SandboxError, match="(?s)" + message) as caught:
        render(spec, OWNER, SETTINGS)
    assert caught.value.cause == "sandbox_spec"


def test_a_task_without_an_image_needs_one_of_the_settings() -> None:
    with pytest.raises(SandboxError, match=r"no kubernetes\.task_image"):
        render(spec_of("true"), OWNER, SETTINGS.model_copy(update={"task_image": None}))


def test_requests_are_shares_of_limits() -> None:
    shared = SETTINGS.model_copy(update={"cpu_request_share": 0.02, "memory_request_share": 0.5})
    pod = render(spec_of(limits=LIMITS), OWNER, shared)
    agent = pod["spec"]["containers"][0]["resources"]
    assert agent["requests"]["cpu"] == "10m"
    assert agent["limits"]["cpu"] == "500m"
    assert agent["requests"]["memory"] == str(32 << 20)
    assert agent["limits"]["memory"] == str(64 << 20)
