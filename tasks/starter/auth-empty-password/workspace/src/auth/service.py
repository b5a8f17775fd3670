"""What the shop calls."""

import time

from .hashing import hash_password, verify_password
from .lock import Lock
from .policy import check_new_password
from .store import Account, AccountStore, UnknownAccount


class BadCredentials(Exception):
    """Name or password is wrong; which of them is not said."""


class AccountLocked(Exception):
    """Too many wrong passwords."""


class AuthService:
    """Login and passwords over a store."""

    def __init__(self, store=None, clock=time.monotonic):
        self.store = store or AccountStore()
        self._lock = Lock(clock)

    def register(self, name, password, roles=()):
        """Make an account. Raises WeakPassword, and ValueError when the name is taken."""
        if name.casefold() in {known.casefold() for known in self.store.names()}:
            raise ValueError(f"{name} is taken")
        check_new_password(password, name)
        account = Account(name=name, stored=hash_password(password), roles=list(roles))
        self.store.save(account)
        return account

    def login(self, name, password):
        """Return the account. Raises BadCredentials or AccountLocked."""
        key = name.casefold()
        if self._lock.is_locked(key):
            raise AccountLocked(name)
        try:
            account = self.store.get(name)
        except UnknownAccount:
            raise BadCredentials from None
        if not verify_password(password, account.stored):
            self._lock.note_failure(key)
            raise BadCredentials
        self._lock.clear(key)
        return account

    def change_password(self, name, old, new):
        """Give an account another password. Raises BadCredentials or WeakPassword."""
        try:
            account = self.store.get(name)
        except UnknownAccount:
            raise BadCredentials from None
        if not verify_password(old, account.stored):
            raise BadCredentials
        check_new_password(new, name)
        account.stored = hash_password(new)
        account.legacy = False
        self.store.save(account)
