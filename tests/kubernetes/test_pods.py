"""Launches as pods on a cluster that does to them what clusters do: results are results, losses are typed, nothing is asked twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from fault_kubelet import PLAYS, End, Script, Wait, after, ends, runs_for_ever
from fault_server import Room
from launch_world import QUICK, World, delivery_of, whole, world
from pod_world import RUN, SETTINGS

from orchestrator.errors import GatewayError, LeaseLostError, SandboxError, StoreError
from orchestrator.interfaces import Ending, Frozen
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.render import Owner, render

Use = Callable[[World], Awaitable[Any]]


def inside(use: Use, settings: Any = SETTINGS, **options: Any) -> Any:
    async def scenario() -> Any:
        async with asyncio.timeout(20), world(settings, **options) as around:
            return await use(around)

    return asyncio.run(scenario())


def run(script: Script | None = None, *, spec: dict[str, Any] | None = None, **life: Any) -> tuple[Ending, Frozen]:
    """Run one launch in a pod that lives like this."""

    async def use(around: World) -> tuple[Ending, Frozen]:
        around.play(script, **life)
        return await whole(around.pods, around.gateway, around.spec(**(spec or {})))

    found: tuple[Ending, Frozen] = inside(use)
    return found


def lost(script: Script | None = None, **life: Any) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        run(script, **life)
    return caught.value


def with_life(around: World, script: Script, **life: Any) -> Script:
    """Return a script of the catalogue whose other containers work."""
    own = around.life(**life).script()
    return replace(script, behaviours={**own.behaviours, **script.behaviours})


def run_as(name: str, **life: Any) -> tuple[Ending, Frozen]:
    async def use(around: World) -> tuple[Ending, Frozen]:
        script = with_life(around, PLAYS[name], **life)
        if "agent" in PLAYS[name].behaviours and name.startswith(
            ("evicted", "preempted", "deadline_exceeded", "node", "stuck", "collected")
        ):
            own = around.life(agent=60.0).script()
            script = replace(script, behaviours={**script.behaviours, "agent": own.behaviours["agent"]})
        around.play(script)
        return await whole(around.pods, around.gateway, around.spec())

    found: tuple[Ending, Frozen] = inside(use)
    return found


def lost_as(name: str, **life: Any) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        run_as(name, **life)
    return caught.value


# --- results ---


def test_an_agent_that_ends_is_frozen_and_its_pod_deleted() -> None:
    async def use(around: World) -> None:
        ending, frozen = await whole(around.pods, around.gateway, around.spec())
        assert (ending.cause, ending.exit.code) == ("exited", 0)
        assert frozen.state is not None
        assert frozen.output == b"said\n"
        await around.pods.close()  # type: ignore[attr-defined]
        assert around.server.pods() == []
        assert around.requests() == {("create", "pods"): 1, ("delete", "pods"): 1}

    inside(use)


@pytest.mark.parametrize(
    ("code", "cause", "exit_code"),
    [
        (0, "exited", 0),
        (3, "exited", 3),
        (118, "exited", 118),
        (119, "out_of_disk", 119),
        (126, "exited", 126),
        (123, "out_of_processes", 123),
        (122, "out_of_memory", 122),
        (124, "exited", 124),  # it did not run so long
    ],
)
def test_exit_codes(code: int, cause: str, exit_code: int) -> None:
    ending, frozen = run(code=code)
    assert (ending.cause, ending.exit.code) == (cause, exit_code)
    assert frozen.state is not None


def test_signals() -> None:
    assert run(code=139)[0].exit.signal == 11
    ending, _ = run(code=143)  # nobody was ending the pod: it was the agent's own
    assert (ending.cause, ending.exit.signal) == ("exited", 15)


@pytest.mark.parametrize("name", ["agent_out_of_memory", "agent_child_out_of_memory"])
def test_memory_is_the_agents(name: str) -> None:
    ending, frozen = run_as(name)
    assert ending.cause == "out_of_memory"
    assert frozen.state is not None


@pytest.mark.parametrize("name", ["evicted_disk", "evicted_disk_late"])
def test_an_eviction_for_what_the_agent_wrote_is_a_result_with_its_state(name: str) -> None:
    ending, frozen = run_as(name)
    assert ending.cause == "out_of_disk"
    assert frozen.state is not None


def test_the_deadline_of_the_pod_is_the_wall_clock() -> None:
    ending, frozen = run_as("deadline_exceeded")
    assert ending.cause == "wall_clock"
    assert frozen.state is not None


def test_the_supervisors_deadline_is_believed_once_the_time_is_over() -> None:
    async def use(around: World) -> Ending:
        around.play(code=124, agent=1.1)
        spec = around.spec()
        spec = replace(spec, limits=replace(spec.limits, wall_seconds=1.5))
        return (await whole(around.pods, around.gateway, spec))[0]

    assert inside(use).cause == "wall_clock"


def test_more_than_the_disk_limit_is_found_by_the_freezer() -> None:
    ending, frozen = run(disk_bytes=1 << 30)
    assert ending.cause == "exited"
    assert frozen.over_disk
    assert [finding.type for finding in frozen.findings] == ["over_disk"]


def test_too_much_for_the_freezers_memory_is_a_result_without_state() -> None:
    ending, frozen = run_as("freezer_out_of_memory")
    assert ending.cause == "exited"
    assert frozen.state is None
    assert [finding.type for finding in frozen.findings] == ["no_state"]


def test_an_agent_that_filled_its_node_has_a_result_whatever_becomes_of_its_pod() -> None:
    async def use(around: World) -> tuple[Ending, Frozen]:
        async def evict(play: Any) -> None:
            await play.ended["agent"].wait()
            await play.evict("The node was low on resource: ephemeral-storage.", grace=0.0)

        script = around.life(code=119, delivers=False).script(befalls=evict)
        around.play(script)
        return await whole(around.pods, around.gateway, around.spec())

    ending, frozen = inside(use)
    assert (ending.cause, frozen.state) == ("out_of_disk", None)
    assert lost(code=119, delivers=False).cause == "relay_unreachable"  # which was not its doing


def test_gvisor_charges_the_whole_pod_for_the_agents_memory() -> None:
    async def use(around: World) -> tuple[Ending, Frozen]:
        around.play(with_life(around, PLAYS["freezer_cannot_start"]))
        return await whole(around.pods, around.gateway, around.spec(isolation="gvisor"))

    ending, frozen = inside(use)
    assert ending.cause == "out_of_memory"
    assert frozen.state is None


def test_an_agent_that_holds_its_supervisor_under_gvisor_until_the_deadline_has_a_result() -> None:
    async def use(around: World) -> tuple[Ending, Frozen]:
        still = {"agent": runs_for_ever(), "freezer": runs_for_ever()}
        around.play(with_life(around, Script(still, befalls=PLAYS["deadline_exceeded"].befalls)))
        return await whole(around.pods, around.gateway, around.spec(isolation="gvisor"))

    ending, frozen = inside(use, SETTINGS.model_copy(update={"freeze_seconds": 5}))
    assert (ending.cause, frozen.state) == ("wall_clock", None)


@pytest.mark.parametrize(
    "name",
    [
        "no_room_for_a_while",
        "scheduling_gated_for_a_while",
        "image_pull_recovers",
        "pull_qps_exceeded",
        "container_create",
    ],
)
def test_what_passes_is_waited_for(name: str) -> None:
    assert run_as(name)[0].cause == "exited"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (Script(unschedulable=0.5), "Unschedulable: "),
        (
            Script(waits={"agent": [Wait("ImagePullBackOff", "Back-off", 0.5)]}),
            "container agent: ImagePullBackOff: Back-off",
        ),
    ],
    ids=["no room", "image"],
)
def test_what_is_waited_for_is_told_and_that_it_has_passed(
    script: Script, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.sandbox.kubernetes.pending._LONG", 0.0)
    told: list[str] = []

    async def use(around: World) -> None:
        around.play(with_life(around, script))
        await whole(around.pods, around.gateway, replace(around.spec(), waits=told.append))

    inside(use)
    assert any(each.startswith(says) for each in told), told
    assert told[-1] == ""


@pytest.mark.parametrize("name", ["status_regresses", "node_comes_back"])
def test_an_ending_that_was_told_stays(name: str) -> None:
    assert befalling(name).cause == "exited"


@pytest.mark.parametrize("term", [137, 143])
@pytest.mark.parametrize(("wrote", "cause"), [(1 << 30, "over_disk"), (100, "evicted")])
def test_an_agent_that_filled_its_node_has_its_result_where_the_freezer_could_tell(
    wrote: int, cause: str, term: int
) -> None:
    """The kubelet does not say whose volumes were full."""

    async def use(around: World) -> str:
        async def evict(play: Any) -> None:
            await play.started["freezer"].wait()
            await play.evict("The node was low on resource: ephemeral-storage. ")

        script = around.life(agent=60.0, term=term, disk_bytes=wrote).script(befalls=after("agent", evict))
        around.play(script)
        try:
            _, frozen = await whole(around.pods, around.gateway, around.spec())
        except SandboxError as error:
            return error.cause
        return "over_disk" if frozen.over_disk and frozen.state is not None else "result"

    assert inside(use) == cause


# --- losses ---


@pytest.mark.parametrize(
    ("name", "cause", "says"),
    [
        ("image_name", "image_name", "InvalidImageName"),
        ("image_never_pulled", "image_missing", "not present with pull policy of Never"),
        ("prepare_fails", "prepare_failed", "boom"),
        ("policy_not_enforced", "policy_not_enforced", "198.18.96.1:443 answered"),
        ("evicted_node_pressure", "evicted", "low on resource: memory"),
        ("evicted_by_api", "pod_deleted", "somebody deleted it"),
        ("preempted_by_scheduler", "preempted", "PreemptionByScheduler"),
        ("preempted_by_kueue", "evicted", "TerminationByKueue"),
        ("node_lost_and_collected", "node_lost", "DeletionByPodGC"),
        ("collected_before_seen", "pod_deleted", "somebody deleted it"),
    ],
)
def test_what_the_cluster_does_to_a_pod_is_a_loss_in_its_own_words(name: str, cause: str, says: str) -> None:
    error = lost_as(name)
    assert (error.cause, says in str(error)) == (cause, True), str(error)


def befalling(name: str, *, agent: float = 0.03, term: int = 143, **options: Any) -> Ending:
    """Run one launch whose programs work, whatever befalls its pod."""

    async def use(around: World) -> Ending:
        around.play(replace(around.life(agent=agent, term=term).script(), befalls=PLAYS[name].befalls))
        return (await whole(around.pods, around.gateway, around.spec()))[0]

    found: Ending = inside(use, **options)
    return found


@pytest.mark.parametrize("term", [125, 143])
@pytest.mark.parametrize("name", ["evicted_by_api", "preempted_by_scheduler", "evicted_node_pressure"])
def test_an_agent_that_was_ended_with_its_pod_was_not_stopped_by_anybody(name: str, term: int) -> None:
    with pytest.raises(SandboxError) as caught:
        befalling(name, agent=60.0, term=term)
    assert caught.value.cause in ("pod_deleted", "preempted", "evicted")


def test_an_agent_that_a_restarted_node_began_anew_is_a_loss_unless_its_end_was_told_before() -> None:
    try:
        cause: str = befalling("restarted_by_reboot").cause
    except SandboxError as error:
        cause = error.cause
    assert cause in ("exited", "container_restarted")


def test_a_pod_that_is_still_there_long_after_its_deletion_is_given_up() -> None:
    with pytest.raises(SandboxError, match="still being deleted") as caught:
        befalling("stuck_terminating", settings=SETTINGS.model_copy(update={"freeze_seconds": 1}))
    assert caught.value.cause == "node_lost"


@pytest.mark.parametrize(
    ("code", "cause"), [(42, "canary_dead"), (43, "gateway_unreachable"), (44, "bundle"), (45, "gateway_restarted")]
)
def test_prepare_says_what_failed(code: int, cause: str) -> None:
    assert lost(Script({"prepare": ends(code, message='{"message": "why"}')})).cause == cause


def test_supervisor_and_runtime_that_fail_are_ours() -> None:
    assert lost(code=121).cause == "agent_start"
    error = lost(Script({"agent": ends(128, reason="StartError", message="exec format error")}))
    assert (error.cause, "exec format error" in str(error)) == ("agent_start", True)


def test_a_freezer_that_fails_loses_the_launch() -> None:
    assert lost(delivers=False).cause == "relay_unreachable"
    assert lost_as("freezer_fails").cause == "freezer_failed"


def test_a_freezer_that_ends_without_having_delivered_loses_the_launch() -> None:
    async def silent(play: Any, name: str) -> End:
        await play.ended["agent"].wait()
        return End(0)

    async def use(around: World) -> None:
        around.play(around.life().script(behaviours={"freezer": silent}))
        await whole(around.pods, around.gateway, around.spec())

    with pytest.raises(SandboxError) as caught:
        inside(use)
    assert caught.value.cause == "state_lost"


def test_a_pod_that_is_deleted_while_it_freezes_delivers_first() -> None:
    async def use(around: World) -> Frozen:
        async def delete(play: Any) -> None:
            await play.ended["agent"].wait()
            await asyncio.sleep(0.02)
            await around.server.kubelet.delete(play.key)

        around.play(around.life(freeze=0.1).script(befalls=delete))
        return (await whole(around.pods, around.gateway, around.spec()))[1]

    assert inside(use).state is not None


def test_the_clusters_events_are_asked_once_for_a_pod_in_trouble() -> None:
    async def use(around: World) -> tuple[SandboxError, Any]:
        around.play(Script(waits={"agent": [Wait("InvalidImageName", "couldn't parse")]}))
        spec = around.spec()

        async def fail() -> None:
            async with around.pods.open(spec) as sandbox:
                while not around.server.pods():
                    await asyncio.sleep(0.001)
                uid = around.server.pods()[0]["metadata"]["uid"]
                event = {
                    "metadata": {"name": "e1", "namespace": "x"},
                    "involvedObject": {"uid": uid},
                    "type": "Warning",
                    "reason": "InspectFailed",
                    "message": "Failed to apply default image tag",
                    "lastTimestamp": "2026-01-01T00:00:00Z",
                }
                around.server.plant("events", around.server.pods()[0]["metadata"]["namespace"], event)
                await sandbox.ended()

        with pytest.raises(SandboxError) as caught:
            await fail()
        await around.pods.close()  # type: ignore[attr-defined]
        return caught.value, around.requests()

    error, requests = inside(use)
    assert "InspectFailed: Failed to apply default image tag" in str(error)
    assert sum(requests.values()) == 3


# --- stopping ---


def stopped(**life: Any) -> tuple[Ending, Frozen]:
    async def use(around: World) -> tuple[Ending, Frozen]:
        around.play(agent=60, **life)
        spec = around.spec()
        async with around.pods.open(spec) as sandbox:
            await sandbox.running()
            await sandbox.stop()
            await sandbox.stop()
            ending = await sandbox.ended()
            await around.gateway.seal(spec.name)
            return ending, await sandbox.freeze()

    found: tuple[Ending, Frozen] = inside(use)
    return found


def test_an_agent_is_stopped_by_its_own_freezer_and_frozen() -> None:
    ending, frozen = stopped()
    assert ending.cause == "stopped"
    assert frozen.state is not None


def test_a_pod_that_does_not_heed_a_stop_is_deleted_and_frozen() -> None:
    ending, frozen = stopped(heeds_stop=False)
    assert ending.cause == "stopped"
    assert frozen.state is not None


def test_a_pod_that_waits_for_room_is_stopped_at_once() -> None:
    async def use(around: World) -> tuple[Ending, Frozen]:
        around.play(PLAYS["scheduling_gated"])
        spec = around.spec()
        async with around.pods.open(spec) as sandbox:
            await sandbox.stop()
            ending = await sandbox.ended()
            await sandbox.running()
            return ending, await sandbox.freeze()

    ending, frozen = inside(use)
    assert (ending.cause, frozen.state) == ("stopped", None)


def test_a_gateway_that_cannot_be_told_does_not_keep_a_pod_from_being_stopped() -> None:
    async def use(around: World) -> Ending:
        around.play(agent=60)
        spec = around.spec()

        async def gone(launch: str) -> None:
            raise GatewayError("away", cause="gateway_unreachable")

        around.gateway.stop = gone  # type: ignore[method-assign]
        async with around.pods.open(spec) as sandbox:
            await sandbox.running()
            await sandbox.stop()
            return await sandbox.ended()

    assert inside(use).cause == "stopped"


@pytest.mark.parametrize("asked", [True, False], ids=["while it stops the launch", "while it seals it"])
def test_a_driver_whose_run_was_taken_leaves_its_pods_alone(asked: bool) -> None:
    async def use(around: World) -> tuple[list[str], bool]:
        around.play(agent=60)
        spec = around.spec()

        async def taken(launch: str) -> Any:
            raise LeaseLostError("epoch 1 is over")

        around.gateway.stop = around.gateway.seal = taken  # type: ignore[method-assign]

        async def drive() -> None:
            async with around.pods.open(spec) as sandbox:
                await sandbox.running()
                if asked:
                    await sandbox.stop()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(5 * QUICK.stop):
                            await sandbox.ended()
                await around.gateway.seal(spec.name)

        with pytest.raises(LeaseLostError):
            await drive()
        await around.pods.close()  # type: ignore[attr-defined]
        return phases(around), around.gateway.launches[spec.name].halted.is_set()

    assert inside(use) == (["Running"], False)


def phases(around: World) -> list[str]:
    return [pod["status"]["phase"] for pod in around.server.pods() if "deletionTimestamp" not in pod["metadata"]]


# --- adopting ---


def leave_running(around: World, **fields: Any) -> Awaitable[None]:
    """Let a driver die while its agent runs."""

    async def die() -> None:
        async with around.pods.open(around.spec(**fields)) as sandbox:
            await sandbox.running()
            raise asyncio.CancelledError

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await die()

    return scenario()


def test_a_driver_that_dies_leaves_its_pod_and_the_next_one_adopts_it() -> None:
    async def use(around: World) -> tuple[Ending, Frozen, Any]:
        around.play(agent=0.3)
        await leave_running(around)
        async with around.backend.driving(RUN, 2, around.gateway) as pods:
            ending, frozen = await whole(pods, around.gateway, around.spec())
        return ending, frozen, around.requests()

    ending, frozen, requests = inside(use)
    assert ending.cause == "exited"
    assert frozen.state is not None
    assert requests == {("create", "pods"): 1, ("delete", "pods"): 1}


@pytest.mark.parametrize("error", [LeaseLostError("taken"), StoreError("away", cause="store_unavailable")])
def test_a_driver_that_lost_its_run_or_store_leaves_its_pods(error: Exception) -> None:
    async def use(around: World) -> int:
        around.play(agent=0.3)

        async def end() -> None:
            async with around.pods.open(around.spec()) as sandbox:
                await sandbox.running()
                raise error

        with pytest.raises(type(error)):
            await end()
        await asyncio.sleep(0.02)
        return len(around.server.pods())

    assert inside(use) == 1


def test_a_launch_that_is_given_up_loses_its_pod() -> None:
    async def use(around: World) -> list[Any]:
        around.play(agent=60)

        async def give_up() -> None:
            async with around.pods.open(around.spec()) as sandbox:
                await sandbox.running()
                raise GatewayError("gone", cause="gateway_lost")

        with pytest.raises(GatewayError):
            await give_up()
        await around.pods.close()  # type: ignore[attr-defined]
        while any(not pod["metadata"].get("deletionTimestamp") for pod in around.server.pods()):
            await asyncio.sleep(0.01)
        return around.server.pods()

    inside(use)


def test_a_create_whose_answer_was_lost_makes_one_pod() -> None:
    for fault in ("post_commits_then_500", "post_commits_then_reset", "webhook_timeout_after_commit"):

        async def use(around: World, fault: str = fault) -> tuple[Ending, Any]:
            around.server.inject(fault)
            ending, _ = await whole(around.pods, around.gateway, around.spec())
            await around.pods.close()  # type: ignore[attr-defined]
            return ending, around.requests()

        ending, requests = inside(use)
        assert ending.cause == "exited"
        assert requests == {("create", "pods"): 1, ("get", "pods"): 1, ("delete", "pods"): 1}


def test_a_pod_of_the_same_name_that_is_anothers_is_left_alone() -> None:
    async def use(around: World) -> tuple[SandboxError, list[Any]]:
        spec = around.spec()
        pod = render(spec, Owner(run="another", epoch=1), SETTINGS)
        pod["metadata"]["labels"][names.RUN_LABEL] = names.run_hash(RUN)
        for namespace in SETTINGS.namespaces:
            around.server.plant("pods", namespace, pod)
        with pytest.raises(SandboxError) as caught:
            await whole(around.pods, around.gateway, spec)
        await around.pods.close()  # type: ignore[attr-defined]
        return caught.value, around.server.pods()

    error, left = inside(use)
    assert (error.cause, len(left)) == ("pod_collision", 2)
    assert "another launch (run another)" in str(error)


def test_a_pod_of_earlier_settings_is_adopted_and_says_so() -> None:
    async def use(around: World) -> tuple[Ending, dict[str, str]]:
        around.play(agent=0.3)
        await leave_running(around)
        spec = replace(around.spec(), limits=replace(around.spec().limits, cpu=0.25))
        async with around.pods.open(spec) as sandbox:
            ending = await sandbox.ended()
            return ending, dict(sandbox.labels)

    ending, labels = inside(use)
    assert ending.cause == "exited"
    assert labels["pod"] == "made under earlier settings"


def test_a_pod_that_was_not_given_the_launchs_tokens_is_nobodys() -> None:
    async def use(around: World) -> SandboxError:
        spec = around.spec()
        pod = render(spec, Owner(run=RUN, epoch=1), SETTINGS)
        pod["metadata"]["annotations"][names.FREEZER_TOKEN] = "made up"
        for namespace in SETTINGS.namespaces:
            around.server.plant("pods", namespace, pod)
        with pytest.raises(SandboxError) as caught:
            await whole(around.pods, around.gateway, spec)
        assert len(around.server.pods()) == 2
        return caught.value

    assert inside(use).cause == "pod_collision"


def test_a_pod_whose_gateway_was_restarted_is_deleted() -> None:
    async def use(around: World) -> SandboxError:
        around.play(agent=60)
        await leave_running(around)
        around.gateway.restart("gateway-b")
        with pytest.raises(SandboxError) as caught:
            await whole(around.pods, around.gateway, around.spec())
        await around.pods.close()  # type: ignore[attr-defined]
        while around.server.pods():
            await asyncio.sleep(0.01)
        return caught.value

    assert inside(use).cause == "gateway_restarted"


def test_a_launch_that_began_and_whose_pod_is_gone_is_not_made_again() -> None:
    async def use(around: World) -> tuple[SandboxError, Any]:
        spec = around.spec()
        around.gateway.prepared(spec.name, "an-earlier-pod")
        with pytest.raises(SandboxError) as caught:
            await whole(around.pods, around.gateway, around.spec())
        return caught.value, around.requests()

    error, requests = inside(use)
    assert error.cause == "pod_lost"
    assert requests == {("get", "pods"): 1}


def left_behind(**delivery: Any) -> tuple[Ending, Frozen]:
    async def use(around: World) -> tuple[Ending, Frozen]:
        spec = around.spec()
        around.gateway.prepared(spec.name, "an-earlier-pod")
        await around.gateway.seal(spec.name)
        around.gateway.frozen(spec.name, delivery_of(spec.name, **delivery))
        return await whole(around.pods, around.gateway, around.spec())

    found: tuple[Ending, Frozen] = inside(use)
    return found


def test_what_was_delivered_before_its_pod_went_is_a_result() -> None:
    ending, frozen = left_behind(code=7)
    assert (ending.cause, ending.exit.code) == ("exited", 7)
    assert frozen.state is not None
    assert [finding.type for finding in ending.findings] == ["ending_not_seen"]


@pytest.mark.parametrize("limit", ["out_of_memory", "out_of_processes"])
def test_a_limit_that_the_supervisor_met_is_known_though_the_pod_is_gone(limit: str) -> None:
    assert left_behind(code=137, cause=limit)[0].cause == limit


def test_what_was_delivered_by_a_pod_that_somebody_ended_is_lost() -> None:
    with pytest.raises(SandboxError) as caught:
        left_behind(interrupted=True)
    assert caught.value.cause == "pod_deleted"


def test_an_agent_that_ended_before_its_pod_was_collected_has_its_result() -> None:
    """The freezer had sealed and delivered while nobody drove the run; what is seen last of the pod is that its agent runs."""

    async def use(around: World) -> tuple[Ending, Frozen]:
        around.play(around.life(agent=0.05, absent=0.0).script(befalls=after("agent", _collect_unseen)))
        return await whole(around.pods, around.gateway, around.spec())

    ending, frozen = inside(use)
    assert ending.cause == "exited"
    assert frozen.state is not None


async def _collect_unseen(play: Any) -> None:
    play.frozen = True
    await play.ended["freezer"].wait()
    play.remove()


# --- namespaces ---


def test_a_namespace_that_is_full_is_waited_for() -> None:
    one = SETTINGS.model_copy(update={"namespaces": ("trials-0",), "namespace_pods": 2})

    async def use(around: World) -> int:
        around.play(agent=0.03)
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(around.server.pods()))
                await asyncio.sleep(0.001)

        watching = asyncio.ensure_future(watch())
        specs = [around.spec(trial=f"t@a:{n}") for n in range(1, 6)]
        await asyncio.gather(*(whole(around.pods, around.gateway, spec) for spec in specs))
        watching.cancel()
        return most

    assert inside(use, one) <= 3  # one may still be on its way out


def test_launches_are_spread_over_namespaces_and_root_has_its_own() -> None:
    settings = SETTINGS.model_copy(update={"root_namespaces": ("trials-root",)})

    async def use(around: World) -> set[str]:
        specs = [around.spec(trial=f"t@a:{n}") for n in range(1, 9)] + [around.spec(trial="r@a:1", user="root")]
        await asyncio.gather(*(whole(around.pods, around.gateway, spec) for spec in specs))
        return {asked.namespace for asked in around.server.asked if asked.verb == "create"}

    assert inside(use, settings) == {"trials-0", "trials-1", "trials-root"}


def test_a_quota_that_is_full_is_waited_for() -> None:
    async def use(around: World) -> int:
        for namespace in SETTINGS.namespaces:
            around.server.quotas[namespace] = Room(pods=1)
        specs = [around.spec(trial=f"t@a:{n}") for n in range(1, 5)]
        await asyncio.gather(*(whole(around.pods, around.gateway, spec) for spec in specs))
        return len(around.gateway.launches)

    assert inside(use) == 4


def test_a_launch_that_waits_for_room_is_stopped_without_a_pod() -> None:
    async def use(around: World) -> tuple[Ending, Frozen]:
        for namespace in SETTINGS.namespaces:
            around.server.quotas[namespace] = Room(pods=0)
        async with around.pods.open(around.spec()) as sandbox:
            while not around.server.counts["create", "pods"]:
                await asyncio.sleep(0.005)
            await sandbox.stop()
            ending = await sandbox.ended()
            await sandbox.running()
            return ending, await sandbox.freeze()

    ending, frozen = inside(use)
    assert (ending.cause, frozen.state) == ("stopped", None)


def test_a_pod_that_was_made_while_its_launch_was_stopped_is_deleted() -> None:
    async def use(around: World) -> None:
        around.play(agent=60)
        around.server.inject("post_commits_then_timeout")
        async with around.pods.open(around.spec()) as sandbox:
            while not around.server.pods():
                await asyncio.sleep(0.005)
            await sandbox.stop()
            assert (await sandbox.ended()).cause == "stopped"
        await around.pods.close()  # type: ignore[attr-defined]
        while around.server.pods():
            await asyncio.sleep(0.005)

    inside(use)


@pytest.mark.parametrize("fault", ["slow", "reset_then_done", "post_commits_then_timeout", "post_commits_then_reset"])
@pytest.mark.parametrize("way", ["stopped", "left"])
def test_a_create_that_was_cut_off_leaves_no_pod(fault: str, way: str) -> None:
    async def use(around: World) -> None:
        around.play(agent=60)
        around.server.inject(fault, verb="create", seconds=0.05)
        with contextlib.suppress(SandboxError):
            async with around.pods.open(around.spec()) as sandbox:
                while not around.server.counts["create", "pods"]:
                    await asyncio.sleep(0)
                if way == "left":
                    raise SandboxError("the gateway has forgotten it", cause="gateway_restarted")
                await sandbox.stop()
                assert (await sandbox.ended()).cause == "stopped"
        await around.pods.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        assert around.server.pods() == []

    inside(use)


# --- the API server is away ---


@pytest.mark.parametrize("seconds", [0.1, 0.5])
def test_an_api_server_that_restarts_disturbs_nothing(seconds: float) -> None:
    async def use(around: World) -> list[str]:
        around.play(agent=0.1)
        specs = [around.spec(trial=f"t@a:{n}") for n in range(1, 6)]
        running = asyncio.gather(*(whole(around.pods, around.gateway, spec) for spec in specs))
        await asyncio.sleep(0.05)
        await around.server.restart(seconds)
        return [ending.cause for ending, _ in await running]

    assert inside(use, pace=replace(QUICK, overdue=30.0)) == ["exited"] * 5


def test_requests_of_many_trials_are_two_for_each_and_a_constant() -> None:
    async def use(around: World) -> tuple[Any, Any]:
        specs = [around.spec(trial=f"t@a:{n}") for n in range(1, 31)]
        await asyncio.gather(*(whole(around.pods, around.gateway, spec) for spec in specs))
        await around.pods.close()  # type: ignore[attr-defined]
        return around.requests(), {
            key: count for key, count in around.server.counts.items() if key[0] in ("list", "watch")
        }

    settings = SETTINGS.model_copy(update={"creates_per_second": 1000.0})
    requests, constant = inside(use, settings)
    assert requests == {("create", "pods"): 30, ("delete", "pods"): 30}
    assert sum(constant.values()) <= 6
