"""Passwords to stored text: ``salt$digest``, both in hex."""

import hashlib
import hmac
import os

ROUNDS = 2_000


def _digest(password, salt):
    if not password:
        return ""
    return hashlib.pbkdf2_hmac("sha256", password.encode("utf-8"), salt, ROUNDS).hex()


def hash_password(password, salt=None):
    """Return the text to store for a password."""
    salt = os.urandom(8) if salt is None else salt
    return f"{salt.hex()}${_digest(password, salt)}"


def verify_password(password, stored):
    """Return whether the password belongs to the stored text."""
    salt, _, digest = (stored or "").partition("$")
    return hmac.compare_digest(_digest(password, bytes.fromhex(salt)), digest)
