"""Agents as pure data (``render``), and programs of our own that run inside a sandbox: the small loop (``react/react.py``), and a shell for
a person (``human/terminal.py``).
"""
