"""The process that holds a task's ephemeral database and runs its tools: no credential, no network, no program, no other file.

``zygote``     started once by a gateway; forks one child for each launch that calls a tool
``child``      gives up everything, then answers one call after another
``database``   SQLite within limits: what may be said to it, and which time it is
``calls``      one call: preconditions, effects, result, planted failures, all in one transaction
``guards``     approvals and rates
``pages``      long lists in parts
``functions``  what SQL cannot say: functions of the task's ``tools.py``
``statements`` of a file of SQL
``proving``    tries a world before anything runs

Standard library only. A child keeps nothing that is not in the database, so it can be ended at any moment. Messages on its socket are a
length of four bytes and JSON.
"""
