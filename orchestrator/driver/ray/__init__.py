"""The pool that runs trials in processes of a Ray cluster. Read ``pool.py`` (this process), ``coordinator.py``, ``supervisor.py``.

Ray gives processes, calls and restarts, and is trusted with nothing else: the truth is in the store. One coordinator hands out trials and
is the one that may spend; supervisors run them. Either may be killed at any instant:

- Each report of a supervisor says all that it holds, so a coordinator that starts anew hands out nothing until every supervisor has told
  it, and then goes by what the store has.
- A supervisor that starts anew has another name than the one before. What the one before held is sealed at the gateway, closed by an
  outcome of class ``infra`` with the cause ``supervisor_lost`` (unless its real outcome stands), and handed out again.
- A launch starts only when the coordinator says so, which it says to no supervisor that has been replaced.

What travels: arguments of actors and calls are seen by whoever may speak to the cluster. They hold specifications, outcomes and verdicts,
and never a key or token: supervisors on this machine read the tokens of gateway and grader from a file that only we may open, and those on
other machines have services of their own, with the keys found there.
"""
