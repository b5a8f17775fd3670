"""Client of the store. Vendored: changes are overwritten with the next delivery."""

import copy


class TooMany(ValueError):
    """More than 1000 ids in one query."""


class Store:
    """Tables of rows by id. Every call of a fetch method is one query."""

    LIMIT = 1000

    def __init__(self, tables):
        self._tables = tables
        self.queries = 0

    def fetch(self, table, row_id):
        """Return the row of that id, or None."""
        self.queries += 1
        return copy.deepcopy(self._tables[table].get(row_id))

    def fetch_many(self, table, row_ids):
        """Return ``{id: row}`` of those ids that exist. Raises TooMany."""
        self.queries += 1
        wanted = set(row_ids)
        if len(wanted) > self.LIMIT:
            raise TooMany(f"{len(wanted)} ids, at most {self.LIMIT}")
        rows = self._tables[table]
        return {row_id: copy.deepcopy(rows[row_id]) for row_id in wanted if row_id in rows}

    def put(self, table, row_id, row):
        """Write a row."""
        self._tables[table][row_id] = row

    def delete(self, table, row_id):
        """Remove a row."""
        self._tables[table].pop(row_id, None)
