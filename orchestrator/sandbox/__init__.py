"""Where an agent or a check runs. One package per kind of sandbox; they do not know each other and share ``kept`` and ``keeper``."""
