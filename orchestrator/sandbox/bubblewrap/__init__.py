"""Sandboxes by bubblewrap. ``backend`` is the asyncio side; ``keeper`` and what it imports is the small trusted program of one launch."""
