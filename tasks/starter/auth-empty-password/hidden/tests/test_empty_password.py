from subject import script

SETUP = """
from auth import *
now = [0.0]
def outcome(work):
    try:
        value = work()
    except Exception as error:
        return type(error).__name__
    return value if isinstance(value, (bool, type(None))) else "ok"
service = AuthService(clock=lambda: now[0])
service.store.import_legacy(["Old"])
service.register("Ada", "difference engine")
"""


def test_verify_refuses_nothing():
    values = script(
        SETUP
        + """
good = hash_password("difference engine")
cases = [("", good), (None, good), ("", ""), (None, ""), ("x", ""), ("x", None), ("", None), ("", "00ff$"), ("difference engine", good)]
result = [outcome(lambda: verify_password(p, s)) for p, s in cases]
"""
    )
    assert values == [False] * 8 + [True]


def test_imported_account_stays_closed():
    values = script(SETUP + 'result = [outcome(lambda: service.login("old", p)) for p in ("", None, "x", " ")]')
    assert values == ["BadCredentials"] * 4


def test_imported_account_cannot_be_taken_over():
    values = script(
        SETUP
        + """
first = [outcome(lambda: service.change_password("old", p, "long enough now")) for p in ("", None)]
result = first + [outcome(lambda: service.login("old", "long enough now")), service.store.get("old").stored]
"""
    )
    assert values == ["BadCredentials", "BadCredentials", "BadCredentials", ""]


def test_no_empty_password_is_given():
    values = script(
        SETUP
        + """
words = ("", None, "   ", " " * 12, "\\t\\n" * 6)
made = [outcome(lambda: service.register("n%d" % i, w)) for i, w in enumerate(words)]
changed = [outcome(lambda: service.change_password("ada", "difference engine", w)) for w in words]
result = [made, changed, service.store.names(), outcome(lambda: service.login("ada", "difference engine"))]
"""
    )
    assert values == [["WeakPassword"] * 5, ["WeakPassword"] * 5, ["Ada", "Old"], "ok"]


def test_empty_guesses_lock():
    values = script(
        SETUP
        + """
guesses = [outcome(lambda: service.login(n, "")) for n in ("ada", "old") for _ in range(5)]
result = [guesses, outcome(lambda: service.login("ada", "difference engine")), outcome(lambda: service.login("old", "x"))]
now[0] = 900.0
result.append(outcome(lambda: service.login("ada", "difference engine")))
"""
    )
    assert values == [["BadCredentials"] * 10, "AccountLocked", "AccountLocked", "ok"]


def test_the_rest_is_as_before():
    values = script(
        SETUP
        + """
result = [
    outcome(lambda: service.login("ADA", "difference engine")),
    outcome(lambda: service.login("nobody", "difference engine")),
    outcome(lambda: service.register("bob", "short")),
    outcome(lambda: service.register("bob", "password")),
    outcome(lambda: service.register("engineer", "Engineer")),
    outcome(lambda: service.change_password("ada", "difference engine", "spaces are fine")),
    outcome(lambda: service.login("ada", "spaces are fine")),
    outcome(lambda: service.register("eve", "exactly8")),
    verify_password("difference engine", "0001020304050607$50c256fa58c9582b22d2c3668413bf66be9bf6f7df42a382aa66ae27a7d070d5"),
    len(hash_password("exactly8").partition("$")[0]),
]
"""
    )
    assert values == ["ok", "BadCredentials", "WeakPassword", "WeakPassword", "WeakPassword", None, "ok", "ok", True, 16]
