"""Any interleaving of changes, broken watches, lists and forgotten history ends in the server's state, and never goes back on the way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import pairwise

from cluster_world import pod
from fault_objects import Objects, Watcher, selector
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sandbox.kubernetes.api import Page, WatchEvent
from orchestrator.sandbox.kubernetes.errors import Doing, failed, refused
from orchestrator.sandbox.kubernetes.podview import PodView
from orchestrator.sandbox.kubernetes.reflector import Pace, Reflector

NAMES = ["t-0", "t-1", "t-2"]
DOING = Doing("watch", "pods")


class PlayedApi:
    """Lists and watches of ``Objects``, failing as told, without a network."""

    def __init__(self, objects: Objects, lists: list[str], watches: list[tuple[str, int]]) -> None:
        self.objects = objects
        self.lists = deque(lists)
        self.watches = deque(watches)
        self.past: list[tuple[list[dict], int]] = []

    def remember(self) -> None:
        self.past.append((self.objects.of("pods"), self.objects.version))

    async def pages(self, resource, namespace, *, labels) -> AsyncIterator[Page]:
        fault = self.lists.popleft() if self.lists else ""
        items, version = self.objects.of("pods"), self.objects.version
        if fault == "behind" and self.past:
            items, version = self.past[0]
        await asyncio.sleep(0)
        if fault == "error":
            raise refused(DOING, 500, b"{}")
        yield Page(items[:2], str(version))
        await asyncio.sleep(0)
        if fault == "gone":
            raise refused(DOING, 410, b"{}")
        if items[2:]:
            yield Page(items[2:], str(version))

    async def watch(
        self, resource, namespace, *, version, labels, seconds, silence_seconds
    ) -> AsyncIterator[WatchEvent]:
        fault, after = self.watches.popleft() if self.watches else ("", 1 << 30)
        await asyncio.sleep(0)
        if fault == "gone" or self.objects.forgotten(int(version)):
            raise refused(DOING, 410, b"{}")
        start = 0 if fault == "repeats" else int(version)
        watcher = Watcher("pods", "", selector("", ""))
        watcher.lines.extend(change.line for change in self.objects.since(start, "pods", ""))
        self.objects.watchers.add(watcher)
        try:
            while True:
                while watcher.lines:
                    if after <= 0 and fault in ("closes", "lost", "garbled", "error"):
                        if fault == "garbled":
                            yield WatchEvent(b'{"type": "ADDED", "object": {}}')
                        elif fault == "error":
                            raise refused(DOING, 200, b'{"code": 500, "reason": "InternalError"}')
                        elif fault == "lost":
                            raise failed(DOING, ConnectionResetError())
                        return
                    after -= 1
                    yield WatchEvent(watcher.lines.popleft())
                watcher.news.clear()
                await watcher.news.wait()
        finally:
            self.objects.watchers.discard(watcher)


def change(objects: Objects, name: str, what: str) -> None:
    key = ("pods", "a", name)
    there = objects.get(key)
    if there is None and what in ("create", "replace"):
        objects.add(key, {**pod(name), "status": {"phase": "Pending"}})
    elif there is not None and what == "modify":
        objects.put("MODIFIED", key, {**there, "status": {"phase": "Running"}})
    elif there is not None and what in ("delete", "replace"):
        objects.put("DELETED", key, there)
        if what == "replace":
            objects.add(key, {**pod(name), "status": {"phase": "Pending"}})


steps = st.one_of(
    st.tuples(st.sampled_from(["create", "modify", "delete", "replace"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["forget", "remember", "observe", "pause"]), st.sampled_from(NAMES)),
)
list_faults = st.sampled_from(["", "error", "gone", "behind"])
watch_faults = st.tuples(
    st.sampled_from(["", "gone", "closes", "lost", "garbled", "error", "repeats"]), st.integers(0, 3)
)


@settings(max_examples=60)
@given(
    st.lists(steps, max_size=25),
    st.lists(list_faults, max_size=5),
    st.lists(watch_faults, max_size=6),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
)
def test_any_interleaving_converges_and_never_goes_back(
    told: list[tuple[str, str]], lists: list[str], watches: list[tuple[str, int]], turns: list[int]
) -> None:
    async def scenario() -> None:
        objects = Objects(history=50)
        api = PlayedApi(objects, lists, watches)
        seen: dict[str, list[PodView]] = {name: [] for name in NAMES}
        async with Reflector(api, "", pace=Pace(first=0, most=0.001)) as pods:  # type: ignore[arg-type]
            followers = [asyncio.ensure_future(follow(pods, name, seen[name])) for name in NAMES]
            for number, (what, name) in enumerate(told):
                if what == "forget":
                    objects.forget_history()
                elif what == "remember":
                    api.remember()
                elif what == "observe" and (there := objects.get(("pods", "a", name))) is not None:
                    pods.observe(there)
                else:
                    change(objects, name, what)
                for _ in range(turns[number % len(turns)]):
                    await asyncio.sleep(0)
            await converged(pods, objects)
            for name in NAMES:
                real, last = objects.get(("pods", "a", name)), seen[name][-1] if seen[name] else None
                assert (real is None) == (last is None or last.gone)
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
        for views in seen.values():
            forwards(views)

    asyncio.run(asyncio.wait_for(scenario(), 20))


async def follow(pods: Reflector, name: str, seen: list[PodView]) -> None:
    view = None
    while True:
        view = await pods.change(name, view)
        seen.append(view)


async def converged(pods: Reflector, objects: Objects) -> None:
    """Wait until all that is there is seen, and nothing else, and followers had their turn."""
    for _ in range(5000):
        real = {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in objects.of("pods")}
        if {view.name: view.version for view in pods} == real:
            break
        await asyncio.sleep(0.0005)
    else:
        raise AssertionError(f"{[*pods]} is not {objects.of('pods')}: {pods.trouble}")
    for _ in range(10):
        await asyncio.sleep(0)


def forwards(views: list[PodView]) -> None:
    for earlier, later in pairwise(views):
        if later.uid == earlier.uid:
            assert later.version > earlier.version or (later.gone and not earlier.gone)
            assert not earlier.gone
        else:
            assert earlier.gone  # the end of one is told before the next
            assert later.version > earlier.version
