"""The file service of a node: what jobs ship comes into directories of their steps, what they want kept goes to the
controller.

A process of its own, started by the node's agent when the first step needs it (`hal.daemons.agent.step_files`), on
connections of its own to the controller: no byte of a file passes through agent or keeper. It has the agent's rights,
and does nothing with a step's files itself: each directory is filled and read by a short process that has become the
step's user (`tree_filler`, `tree_packer`).
"""
