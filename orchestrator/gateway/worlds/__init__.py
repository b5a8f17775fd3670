"""Worlds: the ephemeral databases of launches and the tools over them. The processes that hold them know nothing of a gateway."""
