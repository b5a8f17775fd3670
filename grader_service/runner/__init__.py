"""Files of the runner's sandbox: the module ``subject`` that hidden tests import, and the plugin that reports each test.

No byte of the agent's files ever comes here; only JSON values do.
"""
