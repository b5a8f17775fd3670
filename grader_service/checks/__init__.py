"""Checks as the service runs them: in sandboxes that hold no credential, or over records that are typed already."""
