"""Net sales of a quarter: ``python3 tools/figure.py QUARTER --region NAME --currency EUR|CHF``."""

import argparse
import csv
import json
from decimal import Decimal
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


def net_sales(quarter, region, currency):
    """Return net sales in cents of the currency."""
    rates = json.loads((DATA / "rates.json").read_text())[quarter]
    pattern = f"*-{quarter}.csv" if region == "all" else f"{region}-{quarter}.csv"
    total = Decimal(0)
    for path in sorted(DATA.glob(pattern)):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["returned"] == "no":
                    total += Decimal(row["cents"]) / Decimal(rates[row["currency"]]) * Decimal(rates[currency])
    return int(total.quantize(Decimal(1)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("quarter")
    parser.add_argument("--region", required=True, choices=("north", "south", "west", "all"))
    parser.add_argument("--currency", required=True, choices=("EUR", "CHF"))
    chosen = parser.parse_args()
    cents = net_sales(chosen.quarter, chosen.region, chosen.currency)
    print(f"{cents // 100}.{cents % 100:02d} {chosen.currency}")
