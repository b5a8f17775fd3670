"""What the system observed, as frozen versioned models, and the one module that spells the store's keys.

Pure: no input or output.
"""
