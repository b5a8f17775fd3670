from subject import run, script

DATES = """
from datetime import date
from billing.plans import plan
from billing.schedule import billing_dates, next_billing_date
def days(start, name, count):
    return [d.isoformat() for d in billing_dates(date.fromisoformat(start), plan(name), count)]
def following(start, name, today):
    return next_billing_date(date.fromisoformat(start), plan(name), date.fromisoformat(today)).isoformat()
"""
MONEY = "from billing.money import discount_cents, split_cents\n"


def test_day_returns_after_a_short_month():
    assert script(DATES + "result = [days('2025-01-31', 'monthly', 5), days('2025-08-30', 'quarterly', 4)]") == [
        ["2025-01-31", "2025-02-28", "2025-03-31", "2025-04-30", "2025-05-31"],
        ["2025-08-30", "2025-11-30", "2026-02-28", "2026-05-30"],
    ]


def test_leap_day():
    assert script(DATES + "result = days('2024-02-29', 'yearly', 5)") == [
        "2024-02-29",
        "2025-02-28",
        "2026-02-28",
        "2027-02-28",
        "2028-02-29",
    ]


def test_next_date_is_counted_from_the_start():
    asked = [
        ("2025-01-31", "monthly", "2025-03-29"),
        ("2025-01-31", "monthly", "2025-02-28"),
        ("2025-01-31", "monthly", "2025-03-01"),
        ("2025-01-31", "monthly", "2024-12-01"),
        ("2024-02-29", "yearly", "2027-03-01"),
        ("2025-11-30", "quarterly", "2026-03-01"),
    ]
    assert script(DATES + f"result = [following(*a) for a in {asked!r}]") == [
        "2025-03-31",
        "2025-02-28",
        "2025-03-31",
        "2025-01-31",
        "2028-02-29",
        "2026-05-30",
    ]


def test_shares():
    cases = [(1000, 3), (1001, 3), (-1000, 3), (-1001, 3), (2, 5), (0, 4), (10**17 + 1, 2), (7, 1), (-1, 2)]
    assert script(MONEY + f"result = [split_cents(*c) for c in {cases!r}]") == [
        [334, 333, 333],
        [334, 334, 333],
        [-334, -333, -333],
        [-334, -334, -333],
        [1, 1, 0, 0, 0],
        [0, 0, 0, 0],
        [50000000000000001, 50000000000000000],
        [7],
        [-1, 0],
    ]


def test_discounts_round_half_up():
    cases = [(250, 1), (50, 1), (150, 1), (-250, 1), (-50, 1), (1999, "12.5"), (101, "0.5"), (2900, "0.35"), (100, "0.50"), (115, 10)]
    assert script(MONEY + f"result = [discount_cents(*c) for c in {cases!r}]") == [3, 1, 2, -3, -1, 250, 1, 10, 1, 12]


def test_amounts_are_shown_as_before():
    code = "from billing.money import show\nresult = [show(c) for c in (0, 5, -5, -1205, 123456)]"
    assert script(code) == ["0.00", "0.05", "-0.05", "-12.05", "1234.56"]


def test_nobody_pays():
    code = "try:\n    split_cents(5, 0)\n    result = 'ok'\nexcept ValueError as error:\n    result = str(error)"
    assert script(MONEY + code) == "somebody has to pay"


def test_command_line():
    done = run("python3", "-m", "billing.cli", "monthly", "2025-12-31", "999", "3", "12.5", "2")
    assert (done.exit_code, done.stdout) == (
        0,
        "2025-12-31 8.74 4.37 4.37\n2026-01-31 8.74 4.37 4.37\n2026-02-28 8.74 4.37 4.37\n",
    )
    wrong = run("python3", "-m", "billing.cli", "weekly", "2025-12-31", "999", "3")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
