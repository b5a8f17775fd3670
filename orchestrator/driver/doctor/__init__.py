"""Look at everything that a run here would need, and say what to do about what is wrong. Nothing is changed."""
