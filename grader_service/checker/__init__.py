"""The checker: a container beside the grader's that parses what agents left, where no sandbox can be made.

It has another user than the grader, no secret, no environment, and the grader's folder read-only; they meet on a unix socket. Every job is
a process tree of its own that cannot open a socket, run a program, or (where the kernel has Landlock) see other files than its own.

``server``  takes connections, one process for each
``warden``  one job: limits, ending, answer

Standard library, but for what the checks themselves load.
"""
