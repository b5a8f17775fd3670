cat > /tmp/merge.py <<'PY'
"""Merge customers of the same e-mail address as docs/merging.md says."""

import sqlite3


def clean(email):
    return email.strip().lower()


database = sqlite3.connect("data/shop.db")
database.execute("PRAGMA foreign_keys = ON")
with database:
    people = {}
    for row in database.execute("SELECT id, email, phone, created_at FROM customers ORDER BY created_at, id").fetchall():
        if row[1] and row[1].strip():
            people.setdefault(clean(row[1]), []).append(row)
    for email, rows in people.items():
        (stays, _, phone, _), merged = rows[0], rows[1:]
        for old, *_ in merged:
            database.execute("UPDATE orders SET customer_id = ? WHERE customer_id = ?", (stays, old))
            database.execute("UPDATE notes SET customer_id = ? WHERE customer_id = ?", (stays, old))
        family = [row[0] for row in rows]
        marks = ",".join("?" * len(family))
        seen = set()
        moving = []
        for number, kind, line in database.execute(
            f"SELECT id, kind, line FROM addresses WHERE customer_id IN ({marks}) ORDER BY id", family
        ).fetchall():
            if (kind, line) in seen:
                database.execute("DELETE FROM addresses WHERE id = ?", (number,))
            else:
                moving.append(number)
            seen.add((kind, line))
        for number in moving:
            database.execute("UPDATE addresses SET customer_id = ? WHERE id = ?", (stays, number))
        if not phone:
            phone = next((row[2] for row in reversed(merged) if row[2]), phone)
        for old, *_ in merged:
            database.execute("DELETE FROM customers WHERE id = ?", (old,))
            database.execute("INSERT INTO merges VALUES (?, ?)", (old, stays))
        database.execute("UPDATE customers SET email = ?, phone = ? WHERE id = ?", (email, phone, stays))
database.close()
PY
cp data/shop.db data/shop.db.bak && python3 /tmp/merge.py
