"""Sandboxes in containers of Podman or Docker. ``engine`` speaks to the engine, ``backend`` to the driver; ``keeper`` keeps one launch."""
