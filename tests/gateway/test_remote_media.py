"""Images and files by address would be fetched by the provider: held to the hosts that the task lists, in every shape."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.gateway.media import check_media
from orchestrator.gateway.refusal import Refusal
from orchestrator.spec.hosts import HostRule

FAR = "https://evil.example/?secret"
PARTS = [
    {"type": "image_url", "image_url": {"url": FAR}},
    {"type": "image_url", "image_url": FAR},
    {"type": "input_image", "image_url": FAR},
    {"type": "input_file", "file_url": FAR},
    {"type": "new_kind", "file_url": FAR},
    {"type": "image", "source": {"type": "url", "url": FAR}},
    {"type": "document", "source": {"type": "url", "url": " HTTPS://evil.example/x"}},
    {"type": "image", "source": {"type": "url", "url": "gs://bucket/x"}},
    {"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": FAR}}]},
    {"type": "video_url", "video_url": {"url": "http://evil.example:8080/x"}},
]
HARMLESS = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    {"type": "text", "text": f"look at {FAR}", "annotations": [{"type": "url_citation", "url": FAR}]},
    {"type": "tool_use", "input": {"url": FAR}, "name": "f"},
    {"type": ["image"], "text": "x"},
]


def items(part):
    return [{"role": "user", "content": [part]}]


@pytest.mark.parametrize("part", PARTS, ids=range(len(PARTS)))
def test_an_address_that_the_task_does_not_list_is_refused(part):
    with pytest.raises(Refusal) as caught:
        check_media(items(part), [HostRule.parse("good.example")])
    assert (caught.value.kind, caught.value.finding) == ("remote_media", True)


@pytest.mark.parametrize("part", HARMLESS, ids=range(len(HARMLESS)))
def test_bytes_texts_and_citations_pass(part):
    check_media(items(part), [])


@pytest.mark.parametrize("part", [PARTS[0], PARTS[3], PARTS[8]])
def test_a_listed_host_may_be_named(part):
    check_media(items(part), [HostRule.parse("*.example")])


def test_a_call_with_such_an_image_is_refused_and_found(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch()
            status, answer, _ = await inside.chat([{"role": "user", "content": [PARTS[0]]}])
            seal = await here.client.seal(inside.launch)
            return status, answer["error"]["type"], {finding.type for finding in seal.findings}, seal.steps

    assert asyncio.run(live()) == (403, "remote_media", {"remote_media"}, 0)
