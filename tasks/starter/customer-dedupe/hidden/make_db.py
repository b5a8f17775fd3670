"""Make the database that agents start from: ``python3 make_db.py FILE``. Deterministic."""

import random
import sqlite3
import sys

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT, phone TEXT, created_at TEXT NOT NULL);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
  placed_on TEXT NOT NULL,
  cents INTEGER NOT NULL
);
CREATE TABLE addresses (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customers (id) ON DELETE CASCADE,
  kind TEXT NOT NULL,
  line TEXT NOT NULL,
  UNIQUE (customer_id, kind, line)
);
CREATE TABLE notes (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id) ON DELETE SET NULL, text TEXT NOT NULL);
CREATE TABLE merges (old_id INTEGER PRIMARY KEY, new_id INTEGER NOT NULL REFERENCES customers (id));
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT);
"""
CUSTOMERS = [
    (1, "Ida Brandt", "ida@brandt.example", None, "2023-04-02"),
    (2, "Ole Vik", "ole.vik@post.example", "+47 22 00 11", "2023-01-15"),
    (3, "Ida Brandt", " IDA@brandt.example", "+49 40 555 1", "2024-02-10"),
    (4, "Ida B.", "ida@Brandt.example ", "+49 40 555 2", "2024-09-01"),
    (5, "Sara Lund", "", "+46 8 123", "2023-05-05"),
    (6, "S. Lund", "", None, "2023-06-06"),
    (7, "Walk-in", None, None, "2023-01-01"),
    (8, "Walk-in", None, None, "2023-01-02"),
    (9, "Tom Reyes", "tom@reyes.example", "", "2024-03-03"),
    (10, "Tomas Reyes", "TOM@REYES.EXAMPLE", "+34 91 7", "2023-11-20"),
    (11, "Vik, Ole", "Ole.Vik@post.example", "+47 99 99 99", "2022-12-31"),
    (12, "Mia Kern", "mia.kern@mail.example", None, "2024-01-01"),
    (13, "Mia Kern", "mia.kern@mail.example", "+41 1 1", "2024-01-01"),
    (14, "Mia Kern-Roth", "MIA.KERN@MAIL.EXAMPLE", "+41 2 2", "2024-01-01"),
    (15, "Ann Ito", "ann@ito.example", "+81 3", "2024-05-01"),
    (16, "Ann Itoh", "ann@itoh.example", "+81 4", "2024-05-02"),
    (17, "Paul Neri", "  Paul.Neri@mail.example  ", None, "2023-08-08"),
    (18, "Eva Dahl", "eva@dahl.example", None, "2024-06-01"),
    (19, "Eva Dahl", "eva@dahl.example", "", "2024-07-01"),
    (20, "Eva Dahl", "Eva@Dahl.example", None, "2024-08-01"),
]
ADDRESSES = [
    (1, 1, "home", "Elbe 1"), (2, 3, "home", "Elbe 1"), (3, 4, "work", "Elbe 1"), (4, 4, "home", "elbe 1"), (5, 2, "home", "Fjord 9"),
    (6, 11, "home", "Fjord 9"), (7, 11, "work", "Kai 2"), (8, 10, "home", "Sol 3"), (9, 9, "home", "Sol 4"), (10, 5, "home", "Gata 5"),
    (11, 6, "home", "Gata 5"), (12, 14, "home", "Rain 6"), (13, 13, "home", "Rain 6"), (14, 17, "home", "Via 7"),
    (15, 20, "home", "Dal 8"), (16, 19, "home", "Dal 8"),
]  # fmt: skip
NOTES = [(1, 3, "asked for an invoice"), (2, 9, "prefers e-mail"), (3, None, "till was open on Sunday"), (4, 14, "married"), (5, 2, "bulk buyer")]


def main(path):
    database = sqlite3.connect(path)
    database.execute("PRAGMA page_size = 1024")
    database.executescript(SCHEMA)
    database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", CUSTOMERS)
    database.executemany("INSERT INTO addresses VALUES (?, ?, ?, ?)", ADDRESSES)
    database.executemany("INSERT INTO notes VALUES (?, ?, ?)", NOTES)
    chance = random.Random(20240901)
    for number in range(1, 61):
        day = f"2024-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
        database.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", (number, chance.randint(1, 20), day, chance.randint(100, 20000)))
    database.execute("INSERT INTO settings VALUES ('currency', 'EUR')")
    database.commit()
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    main(sys.argv[1])
