"""Arguments are judged by the schemas that agents send, correctly where they can be judged and quickly where they are meant as a trap."""

from __future__ import annotations

import json
import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.gateway.schemas import MOST_STEPS, Effort, fit


def tool(schema, kind="function"):
    return {"name": "f", "type": kind, "description": None, "schema": schema}


def judged(schema, value):
    return fit(json.dumps(value), tool(schema))


SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "pattern": "^[^;]+$"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "kind": {"enum": ["issue", "code", None]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": True},
    },
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 5}},
}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"query": "a", "limit": 5.0, "kind": None, "tags": ["x"]}, None),
        ({}, "the value lacks 'query'"),
        ({"query": ""}, "`query` must be at least as long as 1"),
        ({"query": "a;b"}, "`query` does not match '^[^;]+$'"),
        ({"query": "a", "limit": "5"}, "`limit` must be integer, not string"),
        ({"query": "a", "limit": 1.5}, "`limit` must be integer, not number"),
        ({"query": "a", "limit": True}, "`limit` must be integer, not boolean"),
        ({"query": "a", "limit": 51}, "`limit` must be at most 50"),
        ({"query": "a", "kind": "pr"}, '`kind` must be one of "issue", "code", null'),
        ({"query": "a", "tags": ["x", 3]}, "`tags[1]` must be string, not number"),
        ({"query": "a", "tags": ["x", "x"]}, "`tags` has an entry twice"),
        ({"query": "a", "more": 1}, "`more` is not allowed"),
        (["query"], "the value must be object, not array"),
    ],
)
def test_a_problem_says_where_and_what(value, problem):
    assert judged(SEARCH, value) == (problem is None, problem)


@pytest.mark.parametrize("arguments", ["", "{", "{oops", "nul", "[" * 200 + "]" * 200, "1e999"])
def test_what_is_no_json_fits_nothing(arguments):
    assert fit(arguments, tool({"type": "object"})).valid is False


@pytest.mark.parametrize("given", [tool(None), tool({"type": "object"}, kind="custom")])
def test_without_a_schema_there_is_nothing_to_fit(given):
    assert fit("*** begin", given) == (None, None)


@pytest.mark.parametrize(
    "schema",
    [
        "object",
        {"type": 3},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "#"},
        {"properties": {"a": 5}},
        {"properties": []},
        {"required": "a"},
        {"properties": {"a": {"pattern": "(?=a)"}}},
        {"properties": {"a": {"pattern": "(a{1000}){1000}"}}},
        {"properties": {"a": {"minimum": "1"}}},
        {"unevaluatedProperties": False},
        {"properties": {"a": {"$id": "https://example.org", "$ref": "#/$defs/x"}}},
        {"properties": {"a": {"multipleOf": 0}}},
    ],
)
def test_a_schema_that_cannot_be_judged_makes_no_call_invalid(schema):
    for value in ({"a": "x"}, {"a": 3}):
        found = judged(schema, value)
        if found.problem is not None:
            assert found.valid is None
            assert found.problem.startswith("the schema cannot be judged: ")
            return
    pytest.fail("it was judged")


def doubled(word, inner):
    levels = {f"a{n}": {word: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**levels, "a40": inner}, "$ref": "#/$defs/a0"}


LONG = {"a" * 10_000: "a" * 100_000}
TRAPS = {
    "doubled": (doubled("allOf", {}), {}),
    "doubled alternatives": (doubled("anyOf", False), {}),
    "tree": (
        {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}] * 2},
        json.loads('{"a":' * 25 + "1" + "}" * 25),
    ),
    "backtracking": ({"additionalProperties": {"pattern": "^(a+)+$"}}, {"x": "a" * 100_000 + "!"}),
    "many patterns": ({"patternProperties": {f"(a|b|{n})*c": True for n in range(5000)}}, LONG),
    "wide": ({"allOf": [{"required": [str(n) for n in range(3000)]}] * 3000}, {str(n): 0 for n in range(3000)}),
    "unlike": ({"items": {"enum": [["x" * 100] * 100] * 100}}, [["x" * 100] * 99] * 100),
    "names": ({"anyOf": [{"properties": {"a" * 10_000: False}}] * 5000}, LONG),
    "slices": ({"anyOf": [{"items": False}] * 5000}, [0] * 100_000),
    "circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {}),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_left_early(name):
    schema, value = TRAPS[name]
    arguments = json.dumps(value)
    began = time.process_time()
    found = fit(arguments, tool(schema))
    spent = time.process_time() - began
    assert found.problem is not None
    # What is asserted is that it ends at all: without the bound each of these takes minutes or years.
    print(f"{name}: {spent:.3f} s of {MOST_STEPS} steps, {found}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "(x|y|.){0,300}z"}, "ab" * 5000),  # 29 microseconds a character: the automaton has too many states
        (
            {"patternProperties": {r"\p{L}" * 4 + str(n): True for n in range(800)}},
            {"a": 1},
        ),  # milliseconds to compile each
        ({"items": {"multipleOf": 5e-324}}, [1.7e308] * 5000),
        ({"uniqueItems": True}, [[[[1.0]]]] * 10_000),
    ],
)
def test_what_is_slow_counts_as_much(schema, value):
    assert "too many steps" in judged(schema, value).problem


def test_all_calls_of_one_answer_share_their_steps():
    schema, effort = doubled("allOf", {}), Effort()
    found = [fit("{}", tool(schema), effort) for _ in range(1000)]
    assert {each.valid for each in found} == {None}
    assert effort.left > -100
    assert fit('{"a": 1}', tool({"type": "object"}), Effort()).valid is True


names = st.sampled_from(["a", "b", "aa"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "b", "aa", "ü"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(-2, 3) | st.just(0.5)
sizes = st.integers(0, 3)
types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def keywords(inner):
    several = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(names, inner, max_size=2)
    patterns = st.dictionaries(st.sampled_from(["^a", "b$", "a{2}"]), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
            "const": values,
            "enum": st.lists(values, min_size=1, max_size=3),
            **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], several),
            **dict.fromkeys(["not", "if", "then", "else", "items", "contains", "additionalProperties"], inner),
            **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], numbers),
            **dict.fromkeys(
                ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], sizes
            ),
            **dict.fromkeys(["minContains", "maxContains"], sizes),
            **dict.fromkeys(["properties", "dependentSchemas"], by_name),
            "patternProperties": patterns,
            "propertyNames": inner,
            "required": st.lists(names, max_size=2, unique=True),
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=2),
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^a", "b$", "a{2}", "[^a]"]),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
            "format": st.just("date"),
        },
    )


leaves = st.booleans() | types.map(lambda kind: {"type": kind})
schemas = st.recursive(leaves, keywords, max_leaves=6)


def check_verdict(schema, definition, value):
    whole = {**schema, "$defs": {"x": definition, "y": {"properties": {"a": {"$ref": "#/$defs/x"}}}}}
    expected = jsonschema.Draft202012Validator(whole).is_valid(value)
    assert judged(whole, value).valid is expected


@settings(max_examples=20)
@given(schema=keywords(schemas), definition=leaves, value=values)
def test_the_verdict_is_that_of_the_standard(schema, definition, value):
    check_verdict(schema, definition, value)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=3000, deadline=None)
@given(schema=keywords(schemas), definition=leaves, value=values)
def test_many_verdicts_are_those_of_the_standard(schema, definition, value):
    check_verdict(schema, definition, value)
