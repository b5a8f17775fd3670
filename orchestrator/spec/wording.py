"""Whether a text says something: phrases as whole words, and patterns that no text can make slow.

The texts are an agent's, and some are looked at in processes that hold secrets, so all of it takes time that grows with the text alone.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import SchemaError, SchemaValidator, core_schema


def mentions(message: str, phrases: tuple[str, ...]) -> bool:
    """Return whether one of the phrases stands in the message as whole words, in any letter case and however it is wrapped."""
    text = " ".join(message.casefold().split())
    return any(
        re.search(rf"(?<!\w){re.escape(' '.join(phrase.casefold().split()))}(?!\w)", text) is not None
        for phrase in phrases
        if phrase.strip()
    )


class Pattern:
    """A regular expression of the kind that is matched in linear time: without look-around and back-references."""

    def __init__(self, pattern: str) -> None:
        """Raise ValueError for a text that is none."""
        try:
            self._found = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        except SchemaError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            msg = (
                f"not a regular expression that is matched in linear time: {re.sub('^[A-Za-z]*[Ee]rror: ', '', reason)}"
            )
            raise ValueError(msg) from None

    def found_in(self, text: str) -> bool:
        """Return whether some part of the text matches."""
        return self._found.isinstance_python(text)


def _is_pattern(text: str) -> str:
    Pattern(text)
    return text


LinearPattern = Annotated[str, AfterValidator(_is_pattern)]
"""The text of a ``Pattern``."""
