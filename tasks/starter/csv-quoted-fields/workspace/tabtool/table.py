"""A table: named columns over records."""

from .reader import FormatError, read_records


class NoColumn(KeyError):
    """There is no column of that name."""


class Table:
    """Columns and rows, all of them text."""

    def __init__(self, columns, rows):
        self.columns = columns
        self.rows = rows

    @classmethod
    def parse(cls, text):
        """Read a table; the first record names the columns. Raises FormatError."""
        records = read_records(text)
        first = next(records, None)
        if first is None:
            raise FormatError(1, "there are no columns")
        columns = first[1]
        rows = []
        for line, fields in records:
            if len(fields) != len(columns):
                raise FormatError(line, f"{len(fields)} fields for {len(columns)} columns")
            rows.append(fields)
        return cls(columns, rows)

    def column(self, name):
        """Return all values of a column. Raises NoColumn."""
        if name not in self.columns:
            raise NoColumn(name)
        place = self.columns.index(name)
        return [row[place] for row in self.rows]
