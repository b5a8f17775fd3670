"""Rules for new passwords. Old ones are not judged again."""

MIN_LENGTH = 8
COMMON = frozenset({"password", "12345678", "qwertyui", "iloveyou"})


class WeakPassword(ValueError):
    """The new password is not acceptable."""


def check_new_password(password, name):
    """Raise WeakPassword if the password is too weak for the account of that name."""
    if password and len(password) < MIN_LENGTH:
        raise WeakPassword(f"a password has at least {MIN_LENGTH} characters")
    if password in COMMON:
        raise WeakPassword("this password is on every list of common passwords")
    if password and password.lower() == name.lower():
        raise WeakPassword("the name is not a password")
