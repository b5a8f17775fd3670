"""Programs that run inside a trial's pod: see README.md. Standard library and libc only; nothing of them runs on the driver's side."""
