"""Retention: remove runs that nobody wants to keep, and what nothing needs any more. Only ``gc`` deletes."""
