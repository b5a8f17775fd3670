"""Programs of the subject's sandbox: they serve requests of hidden tests over the agent's frozen workspace. They see nothing hidden."""
