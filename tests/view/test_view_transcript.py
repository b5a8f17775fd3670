"""A trajectory as a file with an index: the same events as the reader's, wherever one looks first, also while it grows."""

import hashlib
import json
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_world import EVIL, hostile_lines, line, message, step

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.trace.read import read_events
from orchestrator.trace.sharing import Sharer
from orchestrator.view.align import align, by_number, is_same
from orchestrator.view.display import show
from orchestrator.view.texts import PIECE_CHARS, SHOWN_CHARS, find, piece
from orchestrator.view.transcript import LINE_BYTES, Step, Transcript


def opened(*lines):
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the transcript keeps it
    file.write(b"".join(lines))
    file.flush()
    found = Transcript(file, "t")
    found.read_on()
    return found


def shared(lines):
    """Return the lines as the gateway writes them: long texts once."""
    sharer, found = Sharer(), []
    for one in lines:
        event = json.loads(one)
        sharer.share(event)
        found.append(json.dumps(event).encode() + b"\n")
    return found


LONG = [EVIL * 40 + str(n) for n in range(3)]


def long_lines():
    lines = [line(0, "launch", trial="a@b:1")]
    for n, text in enumerate([LONG[0], LONG[1], LONG[0], LONG[2], LONG[1]]):
        lines += step(1 + 4 * n, text, said=LONG[n % 3], result=text, arguments=json.dumps({"text": text}))
    return [*lines, line(len(lines), "seal")]


def test_any_event_read_alone_is_the_one_of_the_reader():
    written = shared(long_lines())
    assert sum(map(len, written)) < sum(map(len, long_lines())) / 2
    transcript = opened(*written)
    events = read_events(b"".join(written))
    for event in reversed(events):
        assert transcript.read(event.seq) == {**event.model_dump(exclude={"data"}), **event.data}
    assert transcript.closed


def test_what_was_shared_is_found_and_counts_as_the_same():
    transcript, plain = opened(*shared(long_lines())), opened(*long_lines())
    assert transcript.steps == plain.steps
    assert is_same(transcript.steps[0], transcript.steps[2])
    assert not is_same(transcript.steps[0], transcript.steps[1])
    assert show(transcript, 10)["blocks"] == show(plain, 10)["blocks"]


@given(st.lists(st.integers(1, 400), max_size=30))
def test_a_file_that_grows_anywhere_has_the_same_index_at_its_end(cuts):
    lines = hostile_lines()
    data = b"".join(lines)
    with tempfile.TemporaryFile() as file:
        transcript = Transcript(file, "t")
        for size in [*cuts, len(data)]:
            piece_, data = data[:size], data[size:]
            file.write(piece_)
            file.flush()
            transcript.read_on()
        assert transcript.lines == opened(*lines).lines


def test_a_torn_last_line_waits_for_its_end():
    whole = line(1, "budget", reason="step_cap")
    transcript = opened(line(0, "launch"), whole[:20])
    assert len(transcript.lines) == 1
    assert not transcript.closed


@pytest.mark.parametrize(
    "bad",
    [
        b"not json\n",
        b"[]\n",
        line(5, "launch"),
        line(1, "party"),
        line(1, "launch", "nobody"),
        b'{"v":2,"seq":1,"t":0,"source":"gateway","type":"seal"}\n',
        b'{"v":1,"seq":1,"t":"soon","source":"gateway","type":"seal"}\n',
        b'{"v":1,"seq":1,"t":1e999,"source":"gateway","type":"seal"}\n',
        line(1, "seal", shared=[{"at": ["what"], "sha256": "0" * 64}]),
        line(1, "seal", what="", shared=7),
        line(1, "seal", what="", shared=[{"at": [], "sha256": "0" * 64}]),
        b"[" * 5000 + b"\n",
    ],
)
def test_a_line_that_is_no_event_is_named(bad):
    with pytest.raises(StoreError, match="line 2"):
        opened(line(0, "launch"), bad)


def test_a_text_that_no_event_holds_is_an_error_and_not_another_text():
    transcript = opened(
        line(0, "launch"), line(1, "finish", message="", shared=[{"at": ["message"], "sha256": "0" * 64}])
    )
    with pytest.raises(StoreError, match="line 2"):
        transcript.read(1)


def test_a_line_without_end_is_not_read_into_memory():
    with tempfile.TemporaryFile() as file:
        file.truncate(3 * LINE_BYTES)
        with pytest.raises(StoreError, match="more than"):
            Transcript(file, "t").read_on()


def test_what_is_shared_again_and_again_does_not_fill_the_memory():
    text = "x" * (1 << 20)
    first = line(0, "finding", kind="a", detail=text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    many = {f"f{n}": "" for n in range(2000)}
    refs = [{"at": [name], "sha256": digest} for name in many]
    event = opened(first, line(1, "finding", kind="b", **many, shared=refs)).read(1)
    assert len(json.dumps(event)) < 80 << 20
    assert "stand in an earlier event" in event["f1999"]


def test_a_hostile_file_is_shown_in_full_and_as_text():
    transcript = opened(*hostile_lines())
    for number in range(len(transcript.lines)):
        event = show(transcript, number)
        assert json.loads(json.dumps(event)) is not None
        for block in event["blocks"]:
            found = find(transcript.read(number), block["pointer"])
            assert (found if isinstance(found, str) else json.dumps(found)) is not None
    call = show(transcript, 3)
    assert call["title"] == EVIL[:200] or call["title"] == EVIL
    assert {block["text"] for block in call["blocks"]} >= {EVIL}


def test_calls_and_results_know_each_other():
    transcript = opened(line(0, "launch"), *step(1, "a", tool="one"), *step(5, "b", tool="two"))
    assert show(transcript, 3)["other"] == 4
    assert show(transcript, 8)["other"] == 7
    assert show(transcript, 8)["title"] == "two"
    assert show(transcript, 4)["apart_s"] == 1.0


def test_a_gateways_result_names_its_call_by_number():
    call = line(1, "tool_call", name="finish", arguments={"status": "completed"}, via="mcp", valid=True)
    result = line(2, "tool_result", call=1, name="finish", outcome="ok", seconds=0.25, content="noted")
    shown = show(opened(line(0, "launch"), call, result), 2)
    assert shown["other"] == 1
    assert ("outcome", "ok") in shown["facts"]
    assert ("seconds", 0.25) in shown["facts"]


def test_an_answer_that_is_sent_back_is_not_shown_twice():
    lines = [line(0, "launch"), *step(1, "my words")]
    again = [message("assistant", "my words", ("shell", '{"command": "ls"}')), message("user", "and now?")]
    lines.append(
        line(5, "model_request", model="p/m", total=4, messages=[{"index": n, **one} for n, one in enumerate(again, 2)])
    )
    shown = show(opened(*lines), 5)
    assert [block["text"] for block in shown["blocks"]] == ["and now?"]
    assert ("own answers sent back", 1) in shown["facts"]


def test_events_are_found_by_type_and_by_text_in_any_case():
    transcript = opened(line(0, "launch"), *step(1, "Größe \U0001f600"), *step(5, "b", result='GRÖSSE "quoted"'))
    assert transcript.choose(["tool_call"], "") == [3, 7]
    assert transcript.choose([], "größe") == []  # only ASCII letters match either case
    assert transcript.choose([], '"QUOTED"') == [8]
    assert transcript.choose(["model_request"], "GO ON") == [1, 5]


def test_long_texts_are_cut_and_the_rest_is_found():
    text = "".join(f"{n:07d}\n" for n in range(60_000))
    transcript = opened(line(0, "finish", status="completed", message=text))
    (block,) = show(transcript, 0)["blocks"]
    assert len(block["text"]) == SHOWN_CHARS
    assert block["chars"] == len(text)
    whole, begin = "", 0
    while begin < len(text):
        part = piece(find(transcript.read(0), block["pointer"]), begin)
        assert len(part["text"]) <= PIECE_CHARS
        whole += part["text"]
        begin += len(part["text"])
    assert whole == text


def test_a_pointer_goes_into_arguments_and_nowhere_else():
    event = {"arguments": '{"a/b": {"c": [1, "two"]}}', "n": 1}
    assert find(event, "/arguments/a~1b/c/1") == "two"
    for wrong in ("/no", "/arguments/x", "/n/x", "/arguments/a~1b/c/9", "/arguments/a~1b/c/x"):
        with pytest.raises(NotFoundError):
            find(event, wrong)


def test_what_is_nested_too_deeply_is_said():
    deep = b'{"v":1,"seq":0,"t":0,"source":"gateway","type":"launch","x":' + b"[" * 900 + b"]" * 900 + b"}\n"
    assert show(opened(deep), 0)["blocks"][0]["text"] == "(nested too deeply to be shown)"


def test_numbers_that_a_page_cannot_hold_are_texts():
    assert ("seed", "702100946549052001") in show(opened(line(0, "launch", seed=702100946549052001)), 0)["facts"]


steps = st.lists(
    st.builds(
        lambda text, calls: Step(0, 1, text, calls),
        st.sampled_from("ab"),
        st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("12")), max_size=2),
    ),
    max_size=12,
)


@given(steps, steps)
def test_every_step_stands_once_and_in_order(left, right):
    pairs = align(left, right)
    assert [one for one, _ in pairs if one is not None] == list(range(len(left)))
    assert [other for _, other in pairs if other is not None] == list(range(len(right)))
    assert all(pair != (None, None) for pair in pairs)


@given(steps)
def test_a_trial_beside_itself_is_the_same_throughout(one):
    assert align(one, one) == by_number(len(one), len(one))


def test_a_step_more_moves_the_rest_along():
    a, b, c = (Step(0, 1, text, [(text, text)]) for text in "abc")
    assert align([a, b, c], [a, c]) == [(0, 0), (1, None), (2, 1)]
    assert align([a, c], [a, b, c]) == [(0, 0), (None, 1), (1, 2)]


def test_very_long_trials_are_put_side_by_side_by_number():
    many = [Step(0, 1)] * 1100
    assert align(many, many[:1000]) == by_number(1100, 1000)
