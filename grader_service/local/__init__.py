"""Places on this machine: limited children, runners and subjects in sandboxes of its own."""
