"""Who runs the trials: prepare a run, start the services on this machine, drive a pool, go on after an interruption."""
