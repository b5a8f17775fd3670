"""Print the next invoices: ``python3 -m billing.cli PLAN START CENTS COUNT [PERCENT [PAYERS]]``."""

import sys
from datetime import date

from .invoice import invoices
from .money import show
from .plans import UnknownPlan, plan


def main(arguments):
    """Return the exit code."""
    try:
        name, start, cents, count, *rest = arguments
        percent = rest[0] if rest else "0"
        payers = int(rest[1]) if len(rest) > 1 else 1
        found = invoices(date.fromisoformat(start), plan(name), int(cents), int(count), percent, payers)
    except (UnknownPlan, ValueError) as error:
        print(f"billing: {error}", file=sys.stderr)
        return 2
    for invoice in found:
        print(invoice.day.isoformat(), show(invoice.cents), " ".join(show(share) for share in invoice.shares))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
