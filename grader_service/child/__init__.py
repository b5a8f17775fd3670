"""Programs of the limited child: they read what agents left, hold no credential and reach no network.

Stdlib only, but for griffe and ruamel.yaml, which load where a check needs them. The same modules are importable in the service for their
types and tests; there they never see an agent's bytes.
"""
