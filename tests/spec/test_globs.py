"""Patterns over paths."""

from __future__ import annotations

import time

import pytest

from orchestrator.spec.globs import covers_folder, matches


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a", "a", True),
        ("a", "b/a", False),
        ("*.py", "x.py", True),
        ("*.py", "d/x.py", False),
        ("**/*.py", "x.py", True),
        ("**/*.py", "a/b/x.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("src/**", "srcs/a", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/c", False),
        ("**", "anything/at/all", True),
        ("**/x/**", "a/x/b", True),
        ("**/x/**", "x/b", True),
        ("**/x/**", "a/x", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("?", "/", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXbY", False),
        ("workspace/", "workspace", True),
        ("*", "", True),
    ],
)
def test_matching(pattern, path, fits):
    assert matches(pattern, path) is fits


def test_whole_folders():
    assert covers_folder("**/node_modules/**", "a/node_modules")
    assert not covers_folder("**/node_modules/**", "a")
    assert not covers_folder("*.py", "a")


def test_a_hostile_path_takes_no_exponential_time():
    started = time.monotonic()
    assert not matches("**/*a*a*a*a*a*a*a*b/**/*a*a*a*b", "/".join(["a" * 250] * 16))
    assert time.monotonic() - started < 2
