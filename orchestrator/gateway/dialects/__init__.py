"""The shapes of model APIs that agents speak: one module each, pure, behind one protocol (``base``)."""
