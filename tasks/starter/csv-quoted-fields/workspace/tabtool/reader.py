"""From text to records."""


class FormatError(ValueError):
    """The text is not comma separated. ``line`` counts from 1."""

    def __init__(self, line, message):
        super().__init__(f"line {line}: {message}")
        self.line = line


def split_line(line, number):
    """Return the fields of one line."""
    fields = []
    field = ""
    quoted = False
    for char in line:
        if char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            fields.append(field)
            field = ""
        else:
            field += char
    if quoted:
        raise FormatError(number, "a quote is never closed")
    if field:
        fields.append(field)
    return fields


def read_records(text):
    """Yield ``(line, fields)`` for each record; ``line`` is the line on which it begins."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, split_line(line, number)
