"""Reports as text."""


def render(lines):
    """Return a report for the terminal."""
    rows = [("item", "name", "stock", "place", "supplier", "")]
    rows += [(line.item, line.name, str(line.stock), line.place, line.supplier, "low" if line.low else "") for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + (f"  {row[5]}" if row[5] else "") for row in rows
    )
