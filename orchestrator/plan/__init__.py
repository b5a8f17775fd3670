"""Which trials: selection, refusals, the run manifest, and what is left to do. Pure."""
