"""The trajectory: ``write`` (the gateway's side), ``read`` (reports and grader) and ``live`` (while it is written); ``FORMAT.md``."""
