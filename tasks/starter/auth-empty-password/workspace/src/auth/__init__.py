"""Accounts and passwords of the shop."""

from .hashing import hash_password, verify_password
from .lock import Lock
from .policy import WeakPassword, check_new_password
from .service import AccountLocked, AuthService, BadCredentials
from .store import Account, AccountStore, UnknownAccount

__all__ = [
    "Account",
    "AccountLocked",
    "AccountStore",
    "AuthService",
    "BadCredentials",
    "Lock",
    "UnknownAccount",
    "WeakPassword",
    "check_new_password",
    "hash_password",
    "verify_password",
]
