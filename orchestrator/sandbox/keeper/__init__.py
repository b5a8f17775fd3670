"""What the keepers of all backends on one machine share. Standard library only: these modules are loaded by a small trusted program.

Read ``life`` first: it is the life of a sandbox in order.
"""
