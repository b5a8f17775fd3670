"""What may not be asked is refused however deep it is, and whatever the case of its name."""

from __future__ import annotations

import pytest

from orchestrator.gateway.dialects.known import BY_PATH
from orchestrator.gateway.refusal import Refusal

CHAT, MESSAGES, RESPONSES = (BY_PATH[f"/v1/{path}"] for path in ("chat/completions", "messages", "responses"))
TEXT = [{"role": "user", "content": "x"}]
BODIES = {
    CHAT: {"model": "main", "messages": TEXT},
    MESSAGES: {"model": "main", "max_tokens": 1, "messages": TEXT},
    RESPONSES: {"model": "main", "input": TEXT},
}
FAR = "https://attacker.example/?leak=1"
NEAR = "data:image/png;base64,AAEC"


def refusal(dialect, hosted=(), **body):
    with pytest.raises(Refusal) as refused:
        dialect.check({**BODIES[dialect], **body}, 100, frozenset(hosted))
    assert refused.value.finding
    return refused.value


@pytest.mark.parametrize("dialect", BODIES, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", ["Model", "MODEL", "Fallbacks", "\u017ftore", "API_Base", "\u017ftream", "Litellm_x"])
def test_a_field_in_another_case_is_refused(dialect, name):
    """Providers that are written in Go read it as the field, and the last one of a name counts."""
    assert "spell it" in refusal(dialect, **{name: "other/model"}).message


@pytest.mark.parametrize("dialect", BODIES, ids=lambda dialect: dialect.name)
def test_fields_of_nobodys_concern_pass_in_any_case(dialect):
    dialect.check({**BODIES[dialect], "topK": 3, "chatTemplateKwargs": {"Model": 1}}, 100, frozenset())


@pytest.mark.parametrize("dialect", BODIES, ids=lambda dialect: dialect.name)
def test_so_is_the_type_of_a_tool(dialect):
    tool = {"type": "function", "name": "f", "function": {"name": "f"}} if dialect is not MESSAGES else {"name": "f"}
    assert "spell it 'type'" in refusal(dialect, tools=[{**tool, "Type": "web_search"}]).message


def test_and_of_a_tool_inside_of_others():
    inner = [{"type": "function", "name": "f", "TYPE": "web_search"}]
    refusal(RESPONSES, tools=[{"type": "namespace", "name": "n", "tools": inner}])
    definition = {"name": "f", "TYPE": "web_search_20250305"}
    block = {"type": "tool_addition", "tool": {"definition": definition}}
    refusal(MESSAGES, messages=[{"role": "user", "content": [block]}])


def image(url):
    return {"type": "image", "source": {"type": "url", "url": url}}


def in_document(part):
    return {"type": "document", "source": {"type": "content", "content": [part]}}


FILE = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}
MEDIA = [
    (CHAT, {"type": "image_url", "image_url": {"url": FAR}}, "image_url"),
    (CHAT, {"type": "image_url", "image_url": FAR}, "image_url"),
    (CHAT, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "image_url"),
    (CHAT, {"type": "image_url", "image_url": {"url": " http://169.254.169.254/"}}, "image_url"),
    (CHAT, {"type": "image_url", "image_url": {"url": NEAR, "URL": FAR}}, "image_url"),
    (CHAT, {"type": "image_url", "image_url": {"url": "//attacker.example/"}}, "image_url"),
    (CHAT, {"type": "file", "file": {"file_data": FAR}}, "file_data"),
    (RESPONSES, {"type": "input_file", "file_data": FAR}, "file_data"),
    (CHAT, {"type": "video_url", "video_url": {"url": FAR}}, "video_url"),
    (CHAT, {"type": "document_url", "Document_URL": FAR}, "document_url"),
    (CHAT, {"type": "file", "file": {"file_id": "file_1"}}, "file_id"),
    (CHAT, {"type": "file", "file": {"File_ID": "file_1"}}, "file_id"),
    (MESSAGES, image(FAR), "url"),
    (MESSAGES, {"type": "tool_result", "tool_use_id": "a", "content": [image(FAR)]}, "url"),
    (MESSAGES, in_document(image(FAR)), "url"),
    (MESSAGES, {"type": "tool_result", "tool_use_id": "a", "content": [in_document(FILE)]}, "file_id"),
    (RESPONSES, {"type": "input_image", "image_url": FAR}, "image_url"),
    (RESPONSES, {"type": "input_file", "file_url": FAR}, "file_url"),
]


@pytest.mark.parametrize(("dialect", "part", "code"), MEDIA)
def test_what_the_provider_would_fetch_is_refused(dialect, part, code):
    """It would be a way out of a sandbox that has none, and into the provider's own network."""
    name = "input" if dialect is RESPONSES else "messages"
    assert refusal(dialect, **{name: [{"role": "user", "content": [part]}]}).code == code


def test_results_of_tools_are_looked_at_as_well():
    items = [{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": FAR}]}]
    assert refusal(RESPONSES, input=items).code == "image_url"
    shot = {"type": "computer_call_output", "call_id": "a", "output": {"type": "computer_screenshot", "image_url": FAR}}
    assert refusal(RESPONSES, input=[shot]).code == "image_url"


@pytest.mark.parametrize(
    ("dialect", "part", "hosted"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": NEAR}}, ()),
        (CHAT, {"type": "image_url", "image_url": {"url": FAR}}, ("web_fetch",)),
        (CHAT, {"type": "text", "text": FAR}, ()),
        (MESSAGES, {"type": "tool_use", "id": "a", "name": "f", "input": {"file_id": 3, "image_url": FAR}}, ()),
        (MESSAGES, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}}, ()),
        (MESSAGES, {"type": "search_result", "source": FAR, "content": [{"type": "text", "text": FAR}]}, ()),
        (RESPONSES, {"type": "input_image", "image_url": NEAR}, ()),
    ],
)
def test_data_and_words_pass(dialect, part, hosted):
    name = "input" if dialect is RESPONSES else "messages"
    dialect.check({**BODIES[dialect], name: [{"role": "user", "content": [part]}]}, 100, frozenset(hosted))
