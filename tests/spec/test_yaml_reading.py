"""YAML 1.2 with places: what is read, what is refused, and where errors point."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.yaml import MAX_BYTES, parse_yaml


def read(text: str) -> Any:
    return parse_yaml(text.encode(), "f.yaml").data


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text if isinstance(text, bytes) else text.encode(), "f.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-0x1F", "-0x1F"),
        ("0x1F", 31),
        ("0o17", 15),
        ("0755", 755),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        (".", "."),
        ("2026-03-02T09:00:00Z", "2026-03-02T09:00:00Z"),
        ("2026-03-02", "2026-03-02"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|\n  a\n  b\n", "a\nb\n"),
        (">-\n  a\n  b\n", "a b"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = read(f"key: {text}")["key"]
    assert (type(found), found) == (type(value), value)


def test_places_count_from_one_and_keep_what_was_written() -> None:
    document = parse_yaml(b"\xef\xbb\xbfa: 0755\nb:\n  - {c: x}\nd:\n", "f.yaml")
    assert document.values[("a",)].text == "0755"
    assert (document.values[("b", 0, "c")].line, document.values[("b", 0, "c")].column) == (3, 9)
    assert (document.keys[("b", 0, "c")].line, document.keys[("b", 0, "c")].column) == (3, 6)
    assert (document.values[("d",)].line, document.values[("d",)].column) == (4, 1)
    assert document.place(("b", 0, "absent", 3)) == document.values[("b", 0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: a: this key is given twice; first in line 1"),
        ("a: {b: 1, b: 2}", "f.yaml:1:11: a.b: this key is given twice; first in line 1"),
        ("a: &x 1", "f.yaml:1:4: a: anchors (&x) are not read; remove it"),
        ("a: *x", "f.yaml:1:4: a: aliases (*x) are not read; write the value again"),
        ("<<: {a: 1}", "f.yaml:1:1: merge keys (<<) are not read; write the values out"),
        ("a: !!str 1", "f.yaml:1:4: a: tags (!…) are not read; write the plain value, text in quotes"),
        (
            "a: !!python/object:os.system x",
            "f.yaml:1:4: a: tags (!…) are not read; write the plain value, text in quotes",
        ),
        ("1: a", "f.yaml:1:1: the key '1' is not text; write it in quotes"),
        ("null: a", "f.yaml:1:1: the key 'null' is not text; write it in quotes"),
        ("? [a]\n: b", "f.yaml:1:3: a key must be text, not a list, a mapping or an alias"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: a second document begins; one file holds one"),
        ("a: .inf", "f.yaml:1:4: a: .inf is not a number that can be used"),
        ("a: .nan", "f.yaml:1:4: a: .nan is not a number that can be used"),
        ("a: 1e999", "f.yaml:1:4: a: 1e999 is too large a number"),
        (f"a: {'9' * 401}", "f.yaml:1:4: a: the number has 401 digits; 400 are the most"),
        ('a: "\\ud800"', "f.yaml:1:4: a: the text holds half of a surrogate pair; write the character itself"),
        ("a: b: c", "f.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a: \x07", "f.yaml:1:4: the character U+0007 may not stand in YAML"),
        (b"a: 1\nb: \xff", "f.yaml:2:4: the file is not UTF-8 text here"),
        (b"a: " + b"x" * MAX_BYTES, f"f.yaml: the file has {MAX_BYTES + 3} bytes; {MAX_BYTES} are the most"),
    ],
)
def test_what_is_refused_says_where_and_why(text: str | bytes, expected: str) -> None:
    assert problems(text) == [expected]


def test_an_open_bracket_is_shown_where_it_was_opened() -> None:
    [problem] = problems("a: 1\nb: [1, 2\n\n\n")
    assert problem.startswith("f.yaml:2:4: not valid YAML: while parsing a flow sequence")


def test_several_mistakes_are_found_at_once() -> None:
    found = problems("a: &x 1\nb: *x\na: 3\n4: 5\ne: .inf\n")
    assert [problem.split(":")[1] for problem in found] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 100_000,
        "{a: " * 50_000,
        "- " * 20_000 + "a",
        "a: &a [x,x]\n" + "".join(f"b{n}: &b{n} [*a,*a]\n" for n in range(50)),
        '"\\Uffffffff"',
        "? " * 10_000,
    ],
)
def test_bombs_are_refused_quickly(bomb: str) -> None:
    started = time.process_time()
    assert problems(bomb)
    assert time.process_time() - started < 5


def test_nesting_is_limited_with_a_place() -> None:
    assert problems("[" * 60 + "]" * 60) == ["f.yaml:1:42: values are nested deeper than 40 levels"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


def refused(text: str) -> SpecError | None:
    """Return the error of reading a text, if there is one; any other exception fails the test."""
    try:
        json.dumps(read(text), allow_nan=False)
    except SpecError as error:
        return error
    return None


def test_an_old_end_of_line_is_refused_where_it_stands() -> None:
    error = refused('a: 1\nb: "x\x85y"\n')
    assert error is not None
    assert ":2:6: the character U+0085 may not stand in YAML" in str(error)


@settings(max_examples=50, deadline=None)
@given(JSON)
def test_json_is_yaml(value: object) -> None:
    text = json.dumps({"key": value}, ensure_ascii=False)
    error = refused(text)
    if error is None:
        assert read(text) == {"key": value}
    else:  # YAML has no raw control characters, and its numbers are limited.
        assert "may not stand" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`?, \n\t0.~", max_size=40))
def test_any_text_is_read_or_refused_never_worse(text: str) -> None:
    error = refused(text)
    assert error is None or all(problem.file == "f.yaml" for problem in error.problems)
