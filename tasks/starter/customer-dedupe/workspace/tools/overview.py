"""Print the schema and the number of rows of each table of a SQLite file."""

import sqlite3
import sys


def main(path):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        count = database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        print(f"-- {name}: {count} rows\n{sql};\n")


if __name__ == "__main__":
    main(sys.argv[1])
