"""The hostile programs run in the same small world as the sandbox's own tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "sandbox"))
