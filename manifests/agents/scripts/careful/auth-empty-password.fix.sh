python3 - <<'PY'
from pathlib import Path


def replace(path, old, new):
    text = Path(path).read_text()
    assert text.count(old) == 1, (path, old)
    Path(path).write_text(text.replace(old, new))


replace("src/auth/hashing.py", '    if not password:\n        return ""\n', "")
replace(
    "src/auth/hashing.py",
    '    salt, _, digest = (stored or "").partition("$")\n',
    '    if not password or not stored:\n        return False\n    salt, _, digest = stored.partition("$")\n',
)
replace(
    "src/auth/policy.py",
    "    if password and len(password) < MIN_LENGTH:",
    '    if not password or not password.strip():\n        raise WeakPassword("a password cannot be empty")\n    if len(password) < MIN_LENGTH:',
)
replace("src/auth/policy.py", "    if password and password.lower()", "    if password.lower()")
PY
