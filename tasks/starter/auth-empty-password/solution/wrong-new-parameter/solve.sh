#!/bin/sh
# fails: public_api_unchanged
# Right behaviour, but renames the parameters of a public function.
python3 - <<'PY'
from pathlib import Path

path = Path("src/auth/hashing.py")
text = path.read_text()
text = text.replace('    if not password:\n        return ""\n', "")
text = text.replace("def verify_password(password, stored):", "def verify_password(candidate, record):")
text = text.replace(
    '    salt, _, digest = (stored or "").partition("$")\n    return hmac.compare_digest(_digest(password,',
    '    if not candidate or not record:\n        return False\n    salt, _, digest = record.partition("$")\n    return hmac.compare_digest(_digest(candidate,',
)
path.write_text(text)
path = Path("src/auth/policy.py")
text = path.read_text()
text = text.replace(
    "    if password and len(password) < MIN_LENGTH:",
    '    if not password or not password.strip():\n        raise WeakPassword("a password cannot be empty")\n    if len(password) < MIN_LENGTH:',
)
path.write_text(text)
PY
