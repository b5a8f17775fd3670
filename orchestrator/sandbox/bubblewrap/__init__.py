"""Sandboxes by bubblewrap. ``backend`` speaks to the driver; ``keeper``, ``stage`` and ``start`` are the trusted program of a launch."""
