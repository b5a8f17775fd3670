"""Which calls are equal: canonical forms and what is masked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.spec.call_key import call_key, canonical, leaves, masked, masks_of

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=". \t\n\r\x0b\x0c"), min_size=1, max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'),
        ([1.0, 1e21, 1e-7, -0.0, 0.1], "[1,1e+21,1e-7,0,0.1]"),
        (9007199254740993, '"\\u00009007199254740993"'),
    ],
)
def test_canonical_text(value: Any, text: str) -> None:
    assert canonical(value).decode() == text


@given(OBJECTS)
def test_order_and_spelling_make_no_difference(arguments: dict[str, Any]) -> None:
    turned = dict(reversed(arguments.items()))
    respelled = json.loads(json.dumps(turned, indent=3, ensure_ascii=True))
    assert call_key("t", arguments, ()) == call_key("t", respelled, ())
    assert call_key("t", arguments, ()) != call_key("u", arguments, ())


@given(OBJECTS, OBJECTS)
def test_equal_keys_mean_equal_values(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (call_key("t", one, ()) == call_key("t", other, ())) == (canonical(one) == canonical(other))


@given(OBJECTS, NAMES, VALUES, VALUES)
def test_a_masked_argument_makes_no_difference(arguments: dict[str, Any], name: str, one: Any, other: Any) -> None:
    masks = masks_of([name])
    without = {key: value for key, value in arguments.items() if key != name}
    keys = {call_key("t", each, masks) for each in (without, {**without, name: one}, {**without, name: other})}
    assert len(keys) == 1


@given(OBJECTS, NAMES)
def test_masking_touches_nothing_else(arguments: dict[str, Any], name: str) -> None:
    rest = masked(arguments, masks_of([name]))
    assert rest == {key: value for key, value in arguments.items() if name not in {key, "*"}}


def test_paths_lead_through_lists_and_any_name() -> None:
    value = {"items": [{"id": 1, "at": 5}, {"id": 2, "at": 6}, 7], "at": 8}
    assert masked(value, masks_of(["items.*.at"])) == {"items": [{"id": 1}, {"id": 2}, 7], "at": 8}
    assert masked(value, masks_of(["items.1"])) == {"items": [{"id": 1, "at": 5}, None, 7], "at": 8}
    assert masked(value, masks_of(["*"])) == {}


@given(VALUES)
def test_leaves_tell_values_apart(value: Any) -> None:
    found = dict(leaves(value))
    assert found
    assert dict(leaves([value]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_has_no_canonical_text(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical({"a": value})
