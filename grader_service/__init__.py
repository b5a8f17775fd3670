"""Grade the frozen state of a trial with hidden checks that its agent could not reach."""
