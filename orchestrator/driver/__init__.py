"""Who runs the trials: prepare a run, start the services on this machine, drive a pool, go on after an interruption.

A run in the order of its life: ``order`` (what was typed, and all that it names), ``images`` and ``workspaces`` (what tasks are made
from), ``worlds`` (their databases), ``builds`` (what agents are made from), ``trees`` (all on this machine), ``place`` (store and
backend), ``prepare`` (refuse, publish, write the manifest), ``local`` (services and a pool), ``execute`` (what is left, to its end),
``inline`` or ``ray`` (the pools). Runs of other kinds are begun by ``single`` (with ``attended``, where a person is the agent),
``validate`` with ``proof``, ``record`` (which makes a cassette of one), and ``rerun``.

Beside it: ``lease`` and ``lookout`` (who drives, from inside and outside), ``wishes`` (what people want of it), ``limits``, ``purse`` and
``estimate`` (money), ``breaker`` and ``tally`` (what trials report), ``collector`` (this process's garbage), ``services``, ``child``,
``process``, ``scratch`` and ``probe`` (other processes), ``committed``, ``standing``, ``overview``, ``golden`` and ``dataset`` (what the
store holds of runs), ``kubernetes`` (runs that a Job of a cluster drives), ``gc``, ``doctor``.
"""
