"""Measure LLM agents: grade the run, not the reply.

Reading order is the life of a trial: ``cli`` (what was typed), ``spec`` (what was asked), ``plan`` (which trials), ``driver`` (who runs
them), ``trial`` (one trial: read ``trial/run.py`` first), ``sandbox`` (where), ``agents`` (who acts), ``gateway`` (the only door out),
``trace`` (what it did), ``storage`` (where bytes go), ``grading`` (ask the grader), ``dataset`` (rows), ``stats`` (what they mean),
``report`` (who is told), ``exports`` (which other programs are), ``importers`` (what ran elsewhere), ``view`` (who looks). Under all of
them: ``wiring``, ``interfaces``, ``records``, ``settings``, ``errors``.
"""

__version__ = "0.1.0"
