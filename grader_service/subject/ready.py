"""The first words on the line of a pair, from the subject's server: all of it works, and it has not read a byte of the agent's yet.

Who runs the tests takes them off the line before these start. A side that does not get so far is broken by our doing, or by its image's:
that is no result. What befalls it later is the agent's.
"""

READY = b"ready\n"
