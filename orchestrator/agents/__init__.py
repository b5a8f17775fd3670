"""Agents as pure data (``render``), and the small loop of our own that runs inside a sandbox (``react/react.py``)."""
