"""The only door out of a sandbox, and the relay that takes frozen states. Read ``app`` first, then ``launch``.

``app``      on one machine: a process for driver, sandboxes and frozen states, on unix sockets
``cluster``  on a cluster: a process for many pods on one TCP port, and for drivers, relays and the reaper on another
``door``     takes a sandbox's listening socket, so that a connection belongs to its launch; ``front`` takes the connections of all pods
``agent``    what an agent may ask: models (``completion``), tools (``tools``); ``pods``: what our own programs in a pod ask beside
``dialects`` the shapes of model APIs, pure; ``metered_call``: one call in any of them, its budget and its record (``transcript``)
``calls``    its attempts: places at the provider (``limiter``), retries, waiting; ``upstream``, ``bedrock``, ``scripted``: providers
``relay``    takes the parts of a frozen state; ``relay_service``: as a service of its own; ``delivery``: what became of a state
``admin``    the driver's side; ``client`` is what the driver uses, over one ``line`` to each gateway
"""
