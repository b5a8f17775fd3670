"""Rules of the page itself: nothing is read as markup, nothing comes from elsewhere, colours can be read."""

import re
from pathlib import Path

import pytest

import orchestrator.view

STATIC = Path(orchestrator.view.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())
NEVER = (
    *(
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
    ),
    *("eval(", "new Function", 'setTimeout("', "importScripts", "javascript:", "http:", "https:", "@import", "url("),
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_way_from_text_to_markup_or_code(path):
    text = path.read_text()
    for word in NEVER:
        assert word not in text, word


def test_the_document_has_no_code_and_no_style_of_its_own():
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
    assert "<style" not in page
    assert not re.search(r"\s(?:style|on\w+)=", page)


def test_every_module_that_is_imported_is_there():
    names = {path.name for path in FILES}
    for path in FILES:
        assert set(re.findall(r'from "\./([\w.]+)"', path.read_text())) <= names
    assert {name for name in names if name.endswith((".js", ".css"))} - _reached() == set()


def _reached():
    found, todo = set(), set(re.findall(r'(?:href|src)="([\w.]+)"', (STATIC / "index.html").read_text()))
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= set(re.findall(r'from "\./([\w.]+)"', (STATIC / name).read_text())) - found
    return found


def _themes():
    light, dark = re.findall(r":root \{(.*?)\}", (STATIC / "style.css").read_text(), re.DOTALL)
    first = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return {"light": first, "dark": first | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark))}


def _luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", ["text", "muted", "accent", "pass", "fail", "warn", "violet", "teal"])
@pytest.mark.parametrize("ground", ["ground", "panel", "hover", "accent-ground"])
def test_text_can_be_read_on_every_ground(theme, text, ground):
    colours = _themes()[theme]
    high, low = sorted((_luminance(colours[text]), _luminance(colours[ground])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5  # WCAG 2.2, level AA
