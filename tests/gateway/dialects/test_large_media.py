"""Media given as base64 text: its digest and size are those of what the text holds, however large it is and however it is written."""

from __future__ import annotations

import base64
import binascii
import hashlib
import random

import pytest

from orchestrator.gateway.dialects.shape import media_part

LARGE = (1 << 20) + 4096
"""Characters: more than are decoded at one time."""


def held(text: str) -> bytes:
    """What Python's own reader finds in it, and the text itself where it finds nothing."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()


def well_formed(extra: int) -> str:
    return base64.b64encode(random.Random(extra).randbytes(LARGE // 4 * 3 + extra)).decode()


@pytest.mark.parametrize(
    "text",
    [
        *(well_formed(extra) for extra in range(3)),
        well_formed(0)[:-1],
        well_formed(0)[: LARGE - 500] + "=" + well_formed(0)[LARGE - 500 :],
        well_formed(1)[:-2] + "\n" + well_formed(1)[-2:],
        "\n".join(well_formed(0)[begin : begin + 76] for begin in range(0, LARGE, 76)),
        well_formed(0)[: 1 << 20] + "==" + "AAAA",
        well_formed(0) + "no base64: ä",
        "AAEC",
        "",
    ],
    ids=["whole", "one", "two", "cut", "padded", "line", "lines", "goes on", "none", "small", "empty"],
)
def test_digest_and_size_are_those_of_what_the_text_holds(text):
    part = media_part("image/png", data=text)
    raw = held(text)
    assert (part["bytes"], part["sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
