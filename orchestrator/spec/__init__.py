"""What a person wrote: tasks, suites, agents, submissions. Pure models, their loader, digests and bundles."""
