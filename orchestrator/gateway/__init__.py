"""The only door out of a sandbox, and the relay that takes frozen states. One process; read ``app`` first, then ``launch``.

``door``   takes a sandbox's listening socket, so that a connection belongs to its launch
``agent``  what an agent may ask: models (``chat``), tools (``tools``)
``calls``  one model call: provider, retries, waiting; ``meter``: budgets and the working clock
``admin``  the driver's side and the freezer's side; ``client`` is what the driver uses
"""
