"""The client of the grader service. Grading itself is in ``grader_service``, which this package never imports."""
