"""The trajectory file: ``write`` (the gateway's side) and ``read`` (reports and grader)."""
