"""Where accounts are kept."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


class UnknownAccount(KeyError):
    """There is no account of that name."""


@dataclass
class Account:
    """One customer."""

    name: str
    stored: str = ""
    legacy: bool = False
    roles: list = field(default_factory=list)


class AccountStore:
    """Accounts by name; names are compared without regard to case."""

    def __init__(self, path=None):
        self._path = Path(path) if path else None
        self._accounts = {}
        if self._path and self._path.exists():
            for row in json.loads(self._path.read_text(encoding="utf-8")):
                self.save(Account(**row))

    def get(self, name):
        """Return the account. Raises UnknownAccount."""
        try:
            return self._accounts[name.casefold()]
        except KeyError:
            raise UnknownAccount(name) from None

    def save(self, account):
        """Keep an account, replacing one of the same name."""
        self._accounts[account.name.casefold()] = account

    def names(self):
        """Return all names, sorted."""
        return sorted(account.name for account in self._accounts.values())

    def import_legacy(self, names):
        """Add accounts of the old shop. They come without a hash."""
        for name in names:
            self.save(Account(name=name, legacy=True))

    def flush(self):
        """Write all accounts to the file, if there is one."""
        if self._path:
            rows = [asdict(self._accounts[key]) for key in sorted(self._accounts)]
            self._path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
