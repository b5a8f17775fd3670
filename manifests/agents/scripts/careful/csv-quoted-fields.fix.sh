python3 - <<'PY'
from pathlib import Path

path = Path("tabtool/reader.py")
head = path.read_text().split("def split_line")[0]
path.write_text(
    head
    + '''def read_records(text):
    """Yield ``(line, fields)`` for each record; ``line`` is the line on which it begins."""
    place = 0
    line = 1
    while place < len(text):
        begin = line
        fields, after = _record(text, place, begin)
        line += text.count("\\n", place, after)
        if after - place > len(_end(text, place)):
            yield begin, fields
        place = after


def _end(text, place):
    for end in ("\\r\\n", "\\n"):
        if text.startswith(end, place):
            return end
    return ""


def _record(text, place, line):
    fields = []
    while True:
        field, place = _quoted(text, place, line) if text.startswith('"', place) else _plain(text, place)
        fields.append(field)
        if text.startswith(",", place):
            place += 1
            continue
        end = _end(text, place)
        if not end and place < len(text):
            raise FormatError(line, "something follows a closing quote")
        return fields, place + len(end)


def _plain(text, place):
    start = place
    while place < len(text) and text[place] != "," and not _end(text, place):
        place += 1
    return text[start:place], place


def _quoted(text, place, line):
    field = ""
    place += 1
    while True:
        close = text.find('"', place)
        if close < 0:
            raise FormatError(line, "a quote is never closed")
        field += text[place:close]
        place = close + 1
        if not text.startswith('"', place):
            return field, place
        field += '"'
        place += 1
'''
)
PY
