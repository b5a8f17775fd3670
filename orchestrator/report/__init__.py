"""Reports: one aggregation feeds every surface; what an agent wrote is shown, never obeyed."""
