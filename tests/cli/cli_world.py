"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "tasks/starter"
DEMO = ROOT / "manifests/demo.yaml"


def clean_environment() -> dict[str, str]:
    """Return this environment without settings or keys of the person who runs the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ORCHESTRATE_") and not name.endswith("_API_KEY")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
